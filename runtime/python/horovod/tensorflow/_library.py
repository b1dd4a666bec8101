"""libhvd_tensorflow.so: our operations, which TensorFlow loads as it loads any library of operations."""

import ctypes
import pathlib
from typing import Any

import tensorflow as tf

from horovod.common import _abi
from horovod.common.exceptions import HorovodVersionMismatchError
from horovod.common.util import is_version_greater_equal_than

MINIMUM = "2.13"
_NAME = "libhvd_tensorflow.so"


def _find() -> str:
    beside = pathlib.Path(_abi.lib._name).resolve().parent / _NAME  # both come from one build
    if beside.is_file():
        return str(beside)
    raise ImportError(
        f"{beside} was not found; install the package with pip, or build the target hvd_tensorflow beside libhvd.so"
    )


def _make_unordered(operations: Any) -> None:
    """Within tf.function TensorFlow runs what has effects one after another, in the program's order. Ours run, used or not,
    and in any order: ranks agree by name. Where TensorFlow does not have this list any more, they stay in order."""
    from tensorflow.python.framework import auto_control_deps

    known = getattr(auto_control_deps, "MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS", None)
    if isinstance(known, frozenset):
        auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS = known | set(operations)


def _keep_unconverted(package: str) -> None:
    """AutoGraph rewrites each function that a tf.function reaches, for which it reads its source: for ours some two seconds of the
    first step, for nothing, as they have no condition or loop on tensors. Where TensorFlow does not have these rules any more, it
    takes that time."""
    from tensorflow.python.autograph.core import config

    known = getattr(config, "CONVERSION_RULES", None)
    if isinstance(known, tuple) and hasattr(config, "DoNotConvert"):
        config.CONVERSION_RULES = (config.DoNotConvert(package), *known)


def _load() -> Any:
    if not is_version_greater_equal_than(tf.__version__, MINIMUM):
        raise HorovodVersionMismatchError(
            f"horovod.tensorflow needs TensorFlow {MINIMUM} or later, and this is {tf.__version__}: pip install -U tensorflow"
        )
    path = _find()
    operations = tf.load_op_library(path)
    error = ctypes.CDLL(path).hvd_tensorflow_error
    error.restype = ctypes.c_char_p
    if error():
        raise ImportError(f"{path}: {error().decode()}")
    _make_unordered(
        "Horovod" + name
        for name in (
            "Allreduce", "GroupedAllreduce", "Allgather", "GroupedAllgather", "Reducescatter", "GroupedReducescatter",
            "Broadcast", "Alltoall",
        )
    )  # fmt: skip
    _keep_unconverted("horovod")
    return operations


operations = _load()
