"""The two sides of a tf.data service: what its workers run, and how training ranks give it a dataset."""

import contextlib
import dataclasses
import json
import os
import time
from typing import Any, Iterator, Mapping, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.common import _arrays
from horovod.common.exceptions import HorovodInternalError
from horovod.runner.common.service.compute_service import ComputeClient
from horovod.runner.common.util.timeout import TimeoutException

_service = tf.data.experimental.service
_SIDES = ("compute", "training")
# How long a reader waits for a file that does not say how long to wait.
_FILE_PATIENCE_S = 300.0


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """What the workers and the training ranks have to know of one another. Its file has the key, so only its owner can read it.

    Attributes:
        dispatchers: one for all training ranks, or as many as there are training ranks.
        workers_per_dispatcher: how many workers serve each.
        dispatcher_side: "compute" when the workers' job has the dispatchers, "training" when the training ranks have them.
        addresses, key: of the ComputeService.
        timeout: seconds that either side waits for the other.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Mapping[str, Sequence[Tuple[str, int]]]
    key: bytes = dataclasses.field(repr=False)
    timeout: int = 60

    def __post_init__(self) -> None:
        if self.dispatcher_side not in _SIDES:
            raise ValueError(f"dispatcher_side={self.dispatcher_side!r} is neither 'compute' nor 'training'")

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """A client of the ComputeService."""
        return ComputeClient(self.addresses, self.key, verbose=verbose)

    def to_dict(self) -> Mapping[str, Any]:
        """What json can write."""
        return {**self.__dict__, "key": self.key.hex()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> "TfDataServiceConfig":
        """What to_dict() gave."""
        addresses = {name: [(address, port) for address, port in places] for name, places in config["addresses"].items()}
        return TfDataServiceConfig(**{**config, "key": bytes.fromhex(config["key"]), "addresses": addresses})

    def write(self, filename: str) -> None:
        """Into a file, which is there only when it is complete."""
        part = f"{filename}.{os.getpid()}.part"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)  # whoever has made it could read the key
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(self.to_dict(), file)
        os.replace(part, filename)

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False, timeout: float = _FILE_PATIENCE_S) -> "TfDataServiceConfig":
        """From a file that `write` made; with wait_for_file_creation it may come within so many seconds."""
        until = time.monotonic() + timeout
        while wait_for_file_creation and not os.path.exists(filename):
            if time.monotonic() > until:
                raise TimeoutException(f"{filename} has not come in {timeout:g} s; do the workers of the tf.data service run?")
            time.sleep(0.1)
        with open(filename) as file:
            return TfDataServiceConfig.from_dict(json.load(file))


def _start_dispatcher(compute: ComputeClient, number: int) -> Any:
    server = _service.DispatchServer()
    protocol, _, place = server.target.partition("://")
    # TensorFlow names it localhost, which other hosts cannot use.
    compute.register_dispatcher(number, f"{protocol}://{compute.own_address()}:{place.rpartition(':')[2]}")
    return server


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """The address of the dispatcher for a training rank, once all its workers are ready. Where dispatchers are on the training
    side, it runs until the `with` ends."""
    compute = compute_config.compute_client(verbose=2)
    number = rank if compute_config.dispatchers > 1 else 0
    server = None
    if compute_config.dispatcher_side == "training" and number == rank:
        server = _start_dispatcher(compute, number)
    try:
        address = compute.wait_for_dispatcher_registration(number, compute_config.timeout)
        compute.wait_for_dispatcher_worker_registration(number, compute_config.timeout)
        yield address
    finally:
        if server is not None:
            server._stop()  # there is no public way


def send_to_data_service(
    dataset: tf.data.Dataset,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: Optional[int] = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> tf.data.Dataset:
    """The dataset, whose elements the workers make. Also a method of tf.data.Dataset.

    Args:
        rank, size: of this training rank.
        processing_mode: TensorFlow's: "distributed_epoch" gives each element to one rank of those that share a dataset.
        reuse_dataset: the training ranks share one dataset; otherwise each has its own.
        round_robin: those that share it get elements in turn, each as many; the dataset must repeat for ever.
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            "send_to_data_service needs dispatcher_side='compute'; where the training ranks have the dispatchers, "
            "use `with tf_data_service(config, rank) as address` and tf.data.experimental.service.distribute"
        )
    in_turn = reuse_dataset and round_robin
    if in_turn and size is None:
        raise ValueError("round_robin=True needs size=hvd.size()")
    with tf_data_service(compute_config, rank) as address:
        return dataset.apply(
            _service.distribute(
                processing_mode=processing_mode,
                service=address,
                job_name="job" if reuse_dataset else None,
                consumer_index=rank if in_turn else None,
                num_consumers=size if in_turn else None,
            )
        )


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig, timeout: Optional[int] = None) -> None:
    """What each rank of the workers' job runs: a tf.data worker, beside it a dispatcher where that is its task, until the
    ComputeService is shut down. `timeout`: seconds after which a worker gives up a dispatcher that does not answer."""
    hvd.init()
    index = hvd.rank()
    number = index // compute_config.workers_per_dispatcher
    compute = compute_config.compute_client(verbose=2)
    dispatcher = None
    if compute_config.dispatcher_side == "compute" and index % compute_config.workers_per_dispatcher == 0:
        dispatcher = _start_dispatcher(compute, number)
    try:
        address = compute.wait_for_dispatcher_registration(number, compute_config.timeout)
        worker = _service.WorkerServer(
            _service.WorkerConfig(
                dispatcher_address=address.partition("://")[2],
                worker_address=f"{compute.own_address()}:%port%",
                heartbeat_interval_ms=1000,
                dispatcher_timeout_ms=timeout * 1000 if timeout else None,
            )
        )
        try:
            compute.register_worker_for_dispatcher(number, index)
            compute.wait_for_shutdown()
        finally:
            worker._stop()  # there is no public way
        # A worker that stops in the middle of a dataset asks its dispatcher again and again if that is gone. After an error
        # nobody is waited for: the others still serve, and end when this rank does.
        with contextlib.suppress(HorovodInternalError):  # another worker is gone
            _arrays.allreduce([np.int32(1)], ["compute_worker.stopped"])
    finally:
        if dispatcher is not None:
            dispatcher._stop()
