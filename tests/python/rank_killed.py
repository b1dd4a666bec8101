"""Rank 1 is killed while all ranks are busy with one operation; runs as a rank (test_killed.py).

Arguments: the operation, and the seconds from its start to the kill. The others report what they were told, and how
long after the kill that was.
"""

import ctypes
import os
import pathlib
import signal
import sys
import threading
import time

import torch
from rank_side import report

import horovod.torch as hvd
from horovod.common import _lib
from horovod.common.exceptions import HorovodInternalError

SMALL, LARGE = torch.ones(100), torch.ones(2_000_000)


def add_and_remove_set():
    hvd.remove_process_set(hvd.add_process_set([0, 1]))


def must(status: int) -> None:
    if status:
        raise _lib.error_of(status)


def create_and_destroy_buffer():
    data = ctypes.c_void_p()
    must(_lib.lib.hvd_buffer_create(None, ctypes.c_int64(1 << 20), ctypes.byref(data)))
    must(_lib.lib.hvd_buffer_destroy(None, data))


def many_at_once():
    handles = [hvd.allreduce_async(SMALL, name=f"loop.{i}") for i in range(20)]
    for handle in handles:
        hvd.synchronize(handle)


OPERATIONS = {
    "allreduce": lambda: hvd.allreduce(SMALL, name="loop"),
    "allreduce_large": lambda: hvd.allreduce(LARGE, name="loop"),
    "allreduce_async": many_at_once,
    "adasum": lambda: hvd.allreduce(LARGE, name="loop", op=hvd.Adasum),
    "group": lambda: hvd.grouped_allreduce([SMALL, LARGE], name="loop"),
    "allgather": lambda: hvd.grouped_allgather([SMALL, LARGE[:100_000]], name="loop"),
    "broadcast": lambda: hvd.broadcast(LARGE, 1, name="loop"),
    "alltoall": lambda: hvd.alltoall(LARGE[:300_000], name="loop"),
    "reducescatter": lambda: hvd.reducescatter(LARGE, name="loop"),
    "barrier": hvd.barrier,
    "join": hvd.join,
    "process_set": add_and_remove_set,
    "buffer": create_and_destroy_buffer,
}


def kill(moment: pathlib.Path) -> None:
    moment.write_text(str(time.monotonic()))  # the same clock in all processes
    os.kill(os.getpid(), signal.SIGKILL)


def error_of(operation, first=lambda: None) -> str:
    try:
        first()
        while True:
            operation()
    except HorovodInternalError as error:
        return str(error)


if __name__ == "__main__":
    moment = pathlib.Path(os.environ["HVD_TEST_REPORTS"]) / "killed"
    hvd.init()
    if hvd.rank() == 1:
        hvd.barrier()
        threading.Timer(float(sys.argv[2]), kill, [moment]).start()
        error_of(OPERATIONS[sys.argv[1]])
    # One who is slow is in the barrier still when rank 1 ends.
    told = {"error": error_of(OPERATIONS[sys.argv[1]], hvd.barrier), "at": time.monotonic()}
    told["seconds"] = told["at"] - float(moment.read_text())
    told["after"] = error_of(OPERATIONS["allreduce"])
    hvd.shutdown()
    report(told)
