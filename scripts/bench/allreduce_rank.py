"""One rank of scripts/bench/run: times allreduce of one library over a list of sizes; rank 0 prints JSON.

Usage: allreduce_rank.py hvd|mpi|gloo ROUNDS BYTES...        float32, in place, medians of per-call seconds
"""

import ctypes
import json
import os
import pathlib
import statistics
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Op(ctypes.Structure):
    """hvd_op of runtime/include/hvd/hvd.h."""

    _fields_ = [("size", ctypes.c_uint32), ("version", ctypes.c_uint32),
                *((name, ctypes.c_int32) for name in ("kind", "dtype", "reduce_op", "root_rank", "process_set", "device",
                                                      "ndim", "reserved")),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("name", ctypes.c_char_p), ("input", ctypes.c_void_p),
                ("output", ctypes.c_void_p), ("prescale", ctypes.c_double), ("postscale", ctypes.c_double),
                ("stream", ctypes.c_void_p)]


def by_hvd():
    lib = ctypes.CDLL(os.environ.get("HVD_LIBRARY", str(ROOT / "build/lib/libhvd.so")))
    lib.hvd_last_error.restype = ctypes.c_char_p
    if lib.hvd_init(None):
        sys.exit(lib.hvd_last_error().decode())

    def allreduce(array):
        shape = (ctypes.c_int64 * 1)(array.size)
        op = Op(ctypes.sizeof(Op), 1, 0, 8, 1, 0, 0, -1, 1, 0, shape, b"x", array.ctypes.data, array.ctypes.data, 1.0, 1.0, None)
        handle = ctypes.c_int64()
        if lib.hvd_enqueue(None, ctypes.byref(op), ctypes.byref(handle)) or lib.hvd_wait(None, handle):
            sys.exit(lib.hvd_last_error().decode())
        lib.hvd_release(None, handle)

    return lib.hvd_rank(None), allreduce, lib.hvd_shutdown


def by_mpi():
    from mpi4py import MPI

    return MPI.COMM_WORLD.rank, lambda array: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, array), lambda: None


def by_gloo():
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    return dist.get_rank(), lambda array: dist.all_reduce(torch.from_numpy(array)), dist.destroy_process_group


def main():
    rank, allreduce, leave = {"hvd": by_hvd, "mpi": by_mpi, "gloo": by_gloo}[sys.argv[1]]()
    rounds, medians = int(sys.argv[2]), {}
    for size in map(int, sys.argv[3:]):
        array = np.ones(size // 4, np.float32)
        times = []
        for _ in range(rounds + 2):
            array[:] = 1.0
            begin = time.perf_counter()
            allreduce(array)
            times.append(time.perf_counter() - begin)
        medians[size] = statistics.median(times[2:])
    if rank == 0:
        print(json.dumps(medians), flush=True)
    leave()


main()
