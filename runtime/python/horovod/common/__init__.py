"""This package is what all fronts share: the binding to libhvd, the job's identity, process sets, exceptions.

Scripts for Horovod before 0.16 import init, size, rank and the like from here; they are those of every front.
"""

import importlib
from typing import Any

_OF_BASICS = ("init", "local_rank", "local_size", "mpi_threads_supported", "rank", "shutdown", "size")
_OF_UTIL = ("check_extension",)


def __getattr__(name: str) -> Any:
    """Returns one of those. It is imported only now, because all modules of this package come here first."""
    for module, names in (("basics", _OF_BASICS), ("util", _OF_UTIL)):
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
