"""The workers of a tf.data service, as a job: hvdrun -np 4 python -m horovod.tensorflow.data.compute_worker CONFIGFILE

It writes CONFIGFILE, which the training job reads, and ends when that calls `config.compute_client().shutdown()`.
"""

import argparse

from horovod.runner.common.service.compute_service import ComputeService
from horovod.runner.common.util import secret
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int = 60) -> None:
    """Runs this rank's worker; rank 0 has the ComputeService, and writes the file."""
    rank, size = get_env_rank_and_size()
    if dispatchers < 1 or size % dispatchers:
        raise ValueError(f"{size} ranks cannot be divided among {dispatchers} dispatchers; start a multiple of that number")
    if rank != 0:
        return compute_worker_fn(TfDataServiceConfig.read(configfile, wait_for_file_creation=True), timeout)
    key = secret.make_secret_key()
    workers = size // dispatchers
    service = ComputeService(dispatchers, workers, key=key)
    try:
        config = TfDataServiceConfig(dispatchers, workers, dispatcher_side, service.addresses(), key, timeout)
        config.write(configfile)
        compute_worker_fn(config, timeout)
    finally:
        service.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="compute_worker", description="A worker of a tf.data service; each rank of a job runs one.")
    parser.add_argument("configfile", help="file that tells the training job where the service is")
    parser.add_argument("--dispatchers", type=int, default=1, help="one for all training ranks, or one for each (default: 1)")
    parser.add_argument("--dispatcher-side", choices=("compute", "training"), default="compute", help="which job has the dispatchers")
    parser.add_argument("--timeout", type=int, default=60, help="seconds to wait for the other side (default: 60)")
    options = parser.parse_args()
    main(options.dispatchers, options.dispatcher_side, options.configfile, options.timeout)
