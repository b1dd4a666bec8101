"""The workers of a tf.data service, as a job: hvdrun -np 4 python -m horovod.tensorflow.data.compute_worker CONFIGFILE

Rank 0 writes CONFIGFILE, which the training job reads; the file stays there. The workers end when that job calls
`config.compute_client().shutdown()`.
"""

import argparse
import contextlib
import os
from typing import Iterator

import horovod.tensorflow as hvd
from horovod.runner.common.service.compute_service import ComputeService
from horovod.runner.common.util import secret
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn


@contextlib.contextmanager
def compute_service(dispatchers: int, size: int, dispatcher_side: str, configfile: str, timeout: int) -> Iterator[TfDataServiceConfig]:
    """What `size` workers need to know, which is in the file too. Until the `with` ends, there is the ComputeService by which they
    and the training ranks find each other. ValueError: they cannot be divided among so many dispatchers."""
    check_dispatchers(dispatchers, size)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(configfile)  # of an earlier job, whose workers are gone
    key = secret.make_secret_key()
    workers = size // dispatchers
    service = ComputeService(dispatchers, workers, key=key)
    try:
        config = TfDataServiceConfig(dispatchers, workers, dispatcher_side, service.addresses(), key, timeout)
        config.write(configfile)
        yield config
    finally:
        service.shutdown()


def check_dispatchers(dispatchers: int, size: int) -> None:
    """ValueError: so many workers cannot be divided among so many dispatchers."""
    if dispatchers < 1 or size % dispatchers:
        raise ValueError(f"{size} ranks cannot be divided among {dispatchers} dispatchers; start a multiple of that number")


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int = 60) -> None:
    """Runs this rank's worker; rank 0 has the ComputeService, and writes the file."""
    hvd.init()
    check_dispatchers(dispatchers, hvd.size())
    here = hvd.rank() == 0
    service = compute_service(dispatchers, hvd.size(), dispatcher_side, configfile, timeout) if here else contextlib.nullcontext()
    with service as config:
        # From the file the others might read what an earlier job has left there, or nothing on a host with other disks.
        compute_worker_fn(hvd.broadcast_object(config, root_rank=0, name="compute_worker.config"), timeout)


def command_line(description: str) -> argparse.Namespace:
    """What the command line of a program that starts workers says."""
    parser = argparse.ArgumentParser(prog="compute_worker", description=description)
    parser.add_argument("configfile", help="file that tells the training job where the service is")
    parser.add_argument("--dispatchers", type=int, default=1, help="one for all training ranks, or one for each (default: 1)")
    parser.add_argument("--dispatcher-side", choices=("compute", "training"), default="compute", help="which job has the dispatchers")
    parser.add_argument("--timeout", type=int, default=60, help="seconds to wait for the other side (default: 60)")
    return parser.parse_args()


if __name__ == "__main__":
    options = command_line("A worker of a tf.data service; each rank of a job runs one.")
    main(options.dispatchers, options.dispatcher_side, options.configfile, options.timeout)
