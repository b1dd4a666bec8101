"""The cases of hvd_on_done, which other languages' bindings stand on; runs as a rank (test_multi.py), on any number of ranks."""

import ctypes
import threading

import torch
from rank_side import run_cases

import horovod.torch as hvd
from horovod.common import _lib

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p)
on_done = _lib.lib.hvd_on_done
on_done.argtypes = [ctypes.c_void_p, ctypes.c_int64, CALLBACK, ctypes.c_void_p]


class Told:
    """What callbacks were called with, and an event for the last of them."""

    def __init__(self, count):
        self.calls, self.count, self.is_over = [], count, threading.Event()
        self.callback = CALLBACK(self._note)

    def _note(self, arg, status, text):
        self.calls.append((arg, status, text, _lib.lib.hvd_size(None)))
        if len(self.calls) == self.count:
            self.is_over.set()


def start(tensor, name):
    return _lib.Plan(_lib.ALLREDUCE, _lib.FLOAT32, tuple(tensor.shape), name, _lib.SUM).enqueue(
        tensor.data_ptr(), tensor.data_ptr()
    )


def case_told_without_a_wait():
    tensors = [torch.full((size,), float(RANK)) for size in (1, 1000, 1_000_000)]
    told = Told(len(tensors))
    handles = [start(tensor, f"told.{i}") for i, tensor in enumerate(tensors)]
    for i, handle in enumerate(handles):
        assert on_done(None, handle, told.callback, i + 1) == 0
    told.is_over.wait()
    assert sorted(told.calls) == [(i + 1, 0, None, -1) for i in range(len(tensors))]  # -1: it may not ask
    for handle, tensor in zip(handles, tensors):
        assert _lib.lib.hvd_release(None, handle) == 0
        assert (tensor == sum(range(SIZE))).all()


def case_told_of_a_failure():
    tensor = torch.ones(4 + RANK)
    told = Told(1)
    handle = start(tensor, "told.mismatch")
    assert on_done(None, handle, told.callback, None) == 0
    told.is_over.wait()
    ((_, status, text, _),) = told.calls
    if SIZE == 1:
        assert (status, text) == (0, None)
    else:
        assert status == _lib.lib.hvd_wait(None, handle) != 0
        assert b"told.mismatch" in text and text == _lib.lib.hvd_last_error(), text
    assert _lib.lib.hvd_release(None, handle) == 0


def case_all_are_told_when_the_job_ends():
    """Comes last: it leaves the job."""
    told = Told(1)
    tensor = torch.ones(3)
    if RANK == 0 and SIZE > 1:
        handle = start(tensor, "told.alone")  # which no other rank asks for
        assert on_done(None, handle, told.callback, None) == 0
    hvd.barrier()
    hvd.shutdown()
    if RANK == 0 and SIZE > 1:
        told.is_over.wait()
        assert told.calls[0][1] != 0 and told.calls[0][2], told.calls


if __name__ == "__main__":
    run_cases(dict(globals()), lambda: hvd.is_initialized() and hvd.barrier())
