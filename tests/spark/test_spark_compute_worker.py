"""The workers of a tf.data service as a Spark job: started as their module says, they make a training process's batches, and end."""

import os
import subprocess
import sys

import pytest
from patience import PATIENCE

TRAIN = """
import sys
from horovod.tensorflow.data import TfDataServiceConfig, send_to_data_service
import tensorflow as tf
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True, timeout=float(sys.argv[2]))
dataset = send_to_data_service(tf.data.Dataset.range(64).map(lambda x: x * x).batch(8), config, rank=0, size=1)
print(sorted(int(x) for batch in dataset.as_numpy_iterator() for x in batch) == [x * x for x in range(64)])
print(config.dispatchers, config.workers_per_dispatcher)
config.compute_client().shutdown()
"""


def test_workers_on_spark_make_the_batches_of_a_training_process(spark_possible, tmp_path):
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed here")
    import horovod.spark.tensorflow.compute_worker as worker

    told = tmp_path / "config.json"
    submit = os.path.join(os.environ["SPARK_HOME"], "bin/spark-submit")
    words = [submit, "--master", "local[2]", "--conf", "spark.ui.enabled=false", worker.__file__, told, "--timeout", str(int(PATIENCE))]
    with open(tmp_path / "workers.log", "w+") as log:
        workers = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            trained = subprocess.run([sys.executable, "-c", TRAIN, told, str(PATIENCE)], capture_output=True, text=True,
                                     timeout=PATIENCE, check=False)  # fmt: skip
            assert trained.returncode == 0, trained.stderr + (tmp_path / "workers.log").read_text()
            assert trained.stdout.splitlines()[-2:] == ["True", "1 2"]
            assert workers.wait(PATIENCE) == 0, (tmp_path / "workers.log").read_text()
        finally:
            workers.kill()
            workers.wait()


def test_cores_that_cannot_be_divided_are_named(spark_possible, tmp_path):
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed here")
    import horovod.spark.tensorflow.compute_worker as worker

    done = subprocess.run([sys.executable, worker.__file__, tmp_path / "config.json", "--dispatchers", "3"], capture_output=True,
                          text=True, timeout=PATIENCE, check=False,
                          env={**os.environ, "PYSPARK_SUBMIT_ARGS": "--master local[2] pyspark-shell"})  # fmt: skip
    assert done.returncode != 0 and "2 ranks cannot be divided among 3 dispatchers" in done.stderr, done.stderr
    assert not (tmp_path / "config.json").exists()
