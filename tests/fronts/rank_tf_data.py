"""The tf.data service of horovod.tensorflow.data; runs as a rank (test_data_service.py) that trains and is a worker too."""

import contextlib
import os
import threading
from itertools import islice
from unittest import mock

import lean_imports  # noqa: F401  (first)
import numpy as np
import tensorflow as tf
from patience import PATIENCE
from rank_side import raises, run_cases

import horovod.tensorflow as hvd
from horovod.common import _arrays
from horovod.common.util import is_version_greater_equal_than
from horovod.tensorflow.data import TfDataServiceConfig, compute_service, send_to_data_service, tf_data_service
from horovod.tensorflow.data.compute_worker import main

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
NUMBERS, BATCH = 256, 32


def stale_file():
    file = os.path.join(os.environ["HVD_TEST_REPORTS"], f"stale-{RANK}")
    TfDataServiceConfig(1, SIZE, "compute", {"lo": [("127.0.0.1", 1)]}, b"another key").write(file)
    return file


class Workers:
    """The workers' job, in threads of this one; ends them, and looks whether they have ended. Ranks other than 0 have a file of
    workers that are gone, as on a host with disks of its own."""

    def __init__(self, name, dispatchers=1, side="compute"):
        self.file = os.path.join(os.environ["HVD_TEST_REPORTS"], name)
        self.thread = threading.Thread(target=self.work, args=(dispatchers, side), daemon=True)
        self.error = None

    def work(self, dispatchers, side):
        try:
            main(dispatchers, side, self.file if RANK == 0 else stale_file(), 60)
        except Exception as error:
            self.error = error

    def __enter__(self):
        self.thread.start()
        return TfDataServiceConfig.read(self.file, wait_for_file_creation=True)

    def __exit__(self, *_):
        hvd.barrier()
        if RANK == 0:
            TfDataServiceConfig.read(self.file).compute_client().shutdown()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive() and self.error is None, self.error


def numbers(dataset, batches=None):
    return [int(number) for batch in islice(dataset.as_numpy_iterator(), batches) for number in batch]


def case_each_rank_has_all_elements_of_its_own_dataset():
    with Workers("own") as config:
        assert os.stat(os.path.join(os.environ["HVD_TEST_REPORTS"], "own")).st_mode & 0o077 == 0
        dataset = tf.data.Dataset.range(NUMBERS).batch(BATCH).send_to_data_service(config, RANK, SIZE)
        assert sorted(numbers(dataset)) == list(range(NUMBERS))
    TfDataServiceConfig.read(os.path.join(os.environ["HVD_TEST_REPORTS"], "own"))  # a script may remove it itself


def case_nobody_reads_the_key_by_a_file_that_he_has_made_before():
    file = os.path.join(os.environ["HVD_TEST_REPORTS"], f"key-{RANK}")
    with open(f"{file}.{os.getpid()}.part", "w+") as theirs:
        os.fchmod(theirs.fileno(), 0o666)
        config = TfDataServiceConfig(1, 1, "compute", {"lo": [("127.0.0.1", 1)]}, b"secret key")
        assert "secret" not in f"{config}"
        config.write(file)
        assert theirs.read() == ""
    assert os.stat(file).st_mode & 0o777 == 0o600
    assert TfDataServiceConfig.read(file).key == b"secret key"


def case_ranks_share_a_dataset():
    with Workers("shared") as config:
        dataset = send_to_data_service(tf.data.Dataset.range(NUMBERS).batch(BATCH), config, RANK, SIZE, reuse_dataset=True)
        everyone = hvd.allgather_object(numbers(dataset))
        assert sorted(sum(everyone, [])) == list(range(NUMBERS))


def case_ranks_share_a_dataset_in_turn():
    if not is_version_greater_equal_than(tf.__version__, "2.19"):
        return  # an iterator of TensorFlow 2.16 that is given up between two elements is never destroyed
    with Workers("turns") as config:
        dataset = tf.data.Dataset.range(NUMBERS).repeat().batch(BATCH)
        raises(ValueError, send_to_data_service, dataset, config, RANK, reuse_dataset=True, round_robin=True)
        dataset = send_to_data_service(dataset, config, RANK, SIZE, reuse_dataset=True, round_robin=True)
        assert len(numbers(dataset, 4)) == 4 * BATCH


def case_training_ranks_have_a_dispatcher_each():
    with Workers("training", SIZE, "training") as config:
        dataset = tf.data.Dataset.range(NUMBERS).batch(BATCH)
        assert "tf_data_service" in raises(RuntimeError, send_to_data_service, dataset, config, RANK)
        with tf_data_service(config, RANK) as address:
            service = tf.data.experimental.service
            found = numbers(dataset.apply(service.distribute(processing_mode="distributed_epoch", service=address)))
            hvd.barrier()
        assert sorted(found) == list(range(NUMBERS))


def case_a_worker_that_fails_does_not_wait_for_the_others():
    """In a job of its own it ends, and the job with it; here it meets them afterwards."""
    workers, is_failing = Workers("failing"), RANK == SIZE - 1
    broken = mock.patch.object(compute_service._service, "WorkerServer", side_effect=OSError("no port"))
    with broken if is_failing else contextlib.nullcontext(), workers:
        if is_failing:
            workers.thread.join(PATIENCE)
            assert "no port" in str(workers.error), workers.error
            workers.error = None
    if is_failing:
        _arrays.allreduce([np.int32(1)], ["compute_worker.stopped"])


run_cases(globals(), hvd.barrier)
