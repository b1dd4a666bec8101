"""libhvd's C interface (runtime/include/hvd/hvd.h) for ctypes: its structures, and the library with its functions' types.

The library is looked for in the package (`horovod/lib/libhvd.so`, where the wheel has it, or next to the package's
`__init__.py`), then at the path in the environment variable HVD_LIBRARY. ctypes releases the interpreter lock during
every call of `lib`.
"""

import ctypes
import os
import pathlib

from horovod.common.exceptions import HorovodVersionMismatchError

ABI_VERSION = 1
MAX_DIMS = 16


class Options(ctypes.Structure):
    """hvd_options."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("timeout_s", ctypes.c_double),
        ("ranks", ctypes.POINTER(ctypes.c_int32)),
        ("rank_count", ctypes.c_int32),
        ("has_mpi_comm", ctypes.c_int32),
        ("mpi_comm", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class Op(ctypes.Structure):
    """hvd_op."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("kind", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("reduce_op", ctypes.c_int32),
        ("root_rank", ctypes.c_int32),
        ("process_set", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("name", ctypes.c_char_p),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("stream", ctypes.c_void_p),
        ("splits", ctypes.POINTER(ctypes.c_int32)),
        ("split_count", ctypes.c_int32),
        ("priority", ctypes.c_int32),
    ]


class Output(ctypes.Structure):
    """hvd_output."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
        ("size_bytes", ctypes.c_int64),
        ("ndim", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_DIMS),
        ("received_splits", ctypes.POINTER(ctypes.c_int32)),
        ("received_count", ctypes.c_int32),
        ("reserved2", ctypes.c_int32),
    ]


def _find() -> str:
    package = pathlib.Path(__file__).resolve().parent.parent
    candidates = [package / "lib" / "libhvd.so", package / "libhvd.so"]
    if os.environ.get("HVD_LIBRARY"):
        candidates.append(pathlib.Path(os.environ["HVD_LIBRARY"]))
    for path in candidates:
        if path.is_file():
            return str(path)
    raise ImportError(
        "libhvd.so was not found; looked at " + ", ".join(map(str, candidates)) + ". Install the package with pip, or "
        "set HVD_LIBRARY to the library that the build left in its lib folder."
    )


def _load() -> ctypes.CDLL:
    path = _find()
    lib = ctypes.CDLL(path)
    found = lib.hvd_abi_version()
    if found != ABI_VERSION:
        raise HorovodVersionMismatchError(
            f"{path} has version {found} of the C interface, this package needs {ABI_VERSION}; install both from one "
            "build"
        )
    context, handle, number = ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)
    lib.hvd_init.argtypes = [ctypes.c_void_p]
    lib.hvd_feature.argtypes = [context, ctypes.c_int32]
    lib.hvd_shutdown.argtypes = []
    lib.hvd_is_initialized.argtypes = []
    lib.hvd_report_failure.argtypes = [ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p]
    for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
        getattr(lib, "hvd_" + name).argtypes = [context]
    lib.hvd_enqueue.argtypes = [context, ctypes.POINTER(Op), number]
    lib.hvd_enqueue_group.argtypes = [context, ctypes.POINTER(ctypes.POINTER(Op)), ctypes.c_int32, number]
    lib.hvd_poll.argtypes = [context, handle, ctypes.POINTER(ctypes.c_int32)]
    lib.hvd_wait.argtypes = [context, handle]
    lib.hvd_result.argtypes = [context, handle, ctypes.POINTER(Output)]
    lib.hvd_release.argtypes = [context, handle]
    lib.hvd_fetch.argtypes = [context, handle, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    lib.hvd_mac.argtypes = [context, ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p]
    lib.hvd_finish.argtypes = [context, number, ctypes.c_int32]
    ranks = ctypes.POINTER(ctypes.c_int32)
    lib.hvd_process_set_add.argtypes = [context, ranks, ctypes.c_int32, ranks]
    lib.hvd_process_set_add_by_members.argtypes = [context, ranks, ctypes.c_int32, ranks]
    lib.hvd_process_set_remove.argtypes = [context, ctypes.c_int32]
    lib.hvd_process_set_numbers.argtypes = [context, ranks, ctypes.c_int32, ranks]
    lib.hvd_process_set_ranks.argtypes = [context, ctypes.c_int32, ranks, ctypes.c_int32, ranks]
    lib.hvd_buffer_create.argtypes = [context, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p)]
    lib.hvd_buffer_destroy.argtypes = [context, ctypes.c_void_p]
    lib.hvd_queue_create.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
    lib.hvd_queue_put.argtypes = [ctypes.c_void_p, context, handle]
    lib.hvd_queue_next.argtypes = [ctypes.c_void_p, ctypes.c_double, number]
    lib.hvd_last_error.restype = ctypes.c_char_p
    lib.hvd_version.restype = ctypes.c_char_p
    return lib


lib = _load()
