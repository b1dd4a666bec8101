"""What a launcher tells a rank, for scripts that ask before hvd.init()."""

import os
from typing import Tuple

# hvdrun's, then those of launchers that can start ranks too: rank and size.
_NAMES = (
    ("HVD_RANK", "HVD_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def get_env_rank_and_size() -> Tuple[int, int]:
    """Returns (rank, size) of this process; (0, 1) when no launcher has started it."""
    for rank, size in _NAMES:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1
