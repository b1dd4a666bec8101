"""Names of Horovod's module that starts mpirun. Here hvdrun starts it (--launcher mpi)."""

from typing import Any, List, Optional, Tuple

from horovod.runner.common._absent import absent_function

mpi_run = absent_function("horovod.runner.mpi_run.mpi_run")
_get_mpi_implementation = absent_function("horovod.runner.mpi_run._get_mpi_implementation")

_OMPI_IMPL, _SMPI_IMPL, _MPICH_IMPL, _IMPI_IMPL = "OpenMPI", "SpectrumMPI", "MPICH", "IntelMPI"
_UNKNOWN_IMPL, _MISSING_IMPL = "Unknown", "Missing"
_LARGE_CLUSTER_THRESHOLD = 64


def _get_mpi_implementation_flags(tcp: bool, env: Any = None) -> Tuple[Optional[List[str]], Optional[List[str]], None]:
    """Returns no flags, because hvdrun chooses them."""
    return None, None, None


def mpi_available(env: Any = None) -> bool:
    """Returns False: this module starts no mpirun, whatever is here."""
    return False


def is_open_mpi(env: Any = None) -> bool:
    """Returns False: Spark and hvdrun start the ranks themselves, whatever mpirun is here."""
    return False
