"""Helpers that fronts share and some scripts import."""

import warnings
from typing import Optional

from horovod.common import _lib
from horovod.common.basics import gloo_built, mpi_built  # noqa: F401  (scripts import them from here)


def choose_op(op: Optional[int], average: Optional[bool]) -> int:
    """The operator that a call means by `op` and the deprecated `average`; Average when it gives neither.

    Raises:
        ValueError: both are given, or `op` is none of the supported operators.
    """
    if op is not None and average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if average is not None:
        warnings.warn("Parameter `average` has been replaced with `op`", DeprecationWarning, stacklevel=4)
        return _lib.AVERAGE if average else _lib.SUM
    if op is None:
        return _lib.AVERAGE
    if op == _lib.ADASUM:
        raise ValueError("op=hvd.Adasum is not supported yet")
    if op not in (_lib.AVERAGE, _lib.SUM, _lib.MIN, _lib.MAX, _lib.PRODUCT):
        raise ValueError(f"op={op!r} is none of hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product")
    return op
