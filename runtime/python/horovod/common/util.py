"""Helpers that fronts share and some scripts import."""

import functools
import importlib
import importlib.util
import re
import warnings
from typing import Any, Callable, List, Optional, Sequence, TypeVar

from horovod.common import _lib
from horovod.common._variables import env as env
from horovod.common.basics import ccl_built as ccl_built  # scripts import these from here
from horovod.common.basics import cuda_built as cuda_built
from horovod.common.basics import ddl_built as ddl_built
from horovod.common.basics import gloo_built as gloo_built
from horovod.common.basics import mpi_built as mpi_built
from horovod.common.basics import nccl_built as nccl_built
from horovod.common.basics import rocm_built as rocm_built

_T = TypeVar("_T")


def choose_op(op: Optional[int], average: Optional[bool]) -> int:
    """Returns the operator that a call means by `op` and the deprecated `average`; Average when it gives neither.

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
    if op not in (_lib.AVERAGE, _lib.SUM, _lib.ADASUM, _lib.MIN, _lib.MAX, _lib.PRODUCT):
        raise ValueError(f"op={op!r} is none of hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product")
    return op


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[Optional[int], Optional[bool]], int]:
    """Returns `choose_op`; the numbers of the operators, which Horovod's takes from `reduce_ops`, are known here."""
    return choose_op


def num_rank_is_power_2(num_rank: int) -> bool:
    """Returns whether a number of ranks is a power of 2."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Returns whether Horovod's Adasum could work with so many ranks; ours works with any number."""
    return num_rank_is_power_2(num_rank)


def split_list(values: Sequence[_T], num_parts: int) -> List[Sequence[_T]]:
    """Returns the values in their order as parts of nearly equal length, the first ones longer. There are fewer parts
    than asked for when there are fewer values."""
    num_parts = min(num_parts, len(values))
    size, longer = divmod(len(values), num_parts) if num_parts else (0, 0)
    ends = [0]
    for part in range(num_parts):
        ends.append(ends[-1] + size + (part < longer))
    return [values[begin:end] for begin, end in zip(ends, ends[1:])]


def is_iterable(x: Any) -> bool:
    """Returns whether a `for` can go over it."""
    try:
        iter(x)
    except TypeError:
        return False
    return True


def _cache(function: Callable[..., _T]) -> Callable[..., _T]:
    """Remembers a function's results by its arguments."""
    return functools.lru_cache(maxsize=None)(function)


@_cache
def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether this package has a front for a framework, and the framework is installed. `ext_base_name`:
    "torch", ..."""
    # The module horovod.mxnet only says that there is no such front.
    has_front = ext_base_name != "mxnet" and importlib.util.find_spec("horovod." + ext_base_name) is not None
    is_there = has_front and importlib.util.find_spec(ext_base_name) is not None
    if verbose and not is_there:
        print(f"{ext_base_name}: " + ("not installed" if has_front else "this package has no front for it"))
    return is_there


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: Any) -> None:
    """Raises ImportError when `extension_available` says no. Only the last part of `ext_name` counts."""
    if not extension_available(ext_name.rsplit(".", 1)[-1]):
        raise ImportError(f"Extension {ext_name} has not been built: the framework is not installed, or has no front here")


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether a framework ("torch", "tensorflow") sees a GPU here. It is imported for that."""
    if ext_base_name not in ("torch", "tensorflow") or not extension_available(ext_base_name, verbose):
        return False
    return bool(importlib.import_module(f"horovod.{ext_base_name}.mpi_ops").gpu_available())


def _numbers(version: str) -> List[int]:
    """Returns the numbers with which a version begins: 2.13.0+cpu is 2, 13, 0."""
    match = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in match.group().split(".")] if match else []


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Returns whether version `ver` is `target` or newer, by the numbers with which they begin. ValueError for a text
    that is no version."""
    for value in (ver, target):
        if not isinstance(value, str) or not _numbers(value):
            raise ValueError(f"a version as '2.13.0' is needed, not {value!r}")
    own, wanted = _numbers(ver), _numbers(target)
    longest = max(len(own), len(wanted))
    return own + [0] * (longest - len(own)) >= wanted + [0] * (longest - len(wanted))
