"""Names of Horovod's module that starts mpirun. Here hvdrun starts it (--launcher mpi)."""

from typing import Any, List, Optional, Tuple


def _get_mpi_implementation_flags(tcp: bool, env: Any = None) -> Tuple[Optional[List[str]], Optional[List[str]], None]:
    """Returns no flags, because hvdrun chooses them."""
    return None, None, None


def is_open_mpi(env: Any = None) -> bool:
    """Returns False: Spark and hvdrun start the ranks themselves, whatever mpirun is here."""
    return False
