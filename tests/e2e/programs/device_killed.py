"""Rank 1 dies while all ranks are busy with one kind of operation on fake GPUs; runs as a rank (test_device_killed.py).

Arguments: the kind, and the seconds from the start to the kill; 0: the fake NCCL kills it (FAKE_NCCL_KILL). The others
report what they were told and what is left on their device; rank 1's report is the moment of its end.
"""

import ctypes
import os
import signal
import sys
import threading
import time

from rank_side import report

RANK = int(os.environ["HVD_RANK"])
ROOM = 1 << 19  # bytes of each tensor; more than a socket takes at once


def tell_of_own_end():
    """A process that sees this one end, however that is."""
    end, own = os.pipe()
    if os.fork() == 0:
        os.close(own)
        os.read(end, 1)
        report(time.monotonic())  # the same clock in all processes
        os._exit(0)
    os.close(end)


signal.signal(signal.SIGTERM, signal.SIG_IGN)  # hvdrun ends the others of a job that has failed
if RANK == 1:
    tell_of_own_end()

from horovod.common import _lib  # noqa: E402

cuda, nccl = (ctypes.CDLL(path) for path in os.environ["HVD_TEST_FAKES"].split(":"))
for count in (cuda.fake_cuda_count, nccl.fake_nccl_count):
    count.restype = ctypes.c_int64


def must(code):
    assert code == 0, f"the fake driver says {code}"


def get(function, kind, *arguments):
    made = kind()
    must(function(ctypes.byref(made), *arguments))
    return made


must(cuda.cuInit(0))
must(cuda.cuCtxSetCurrent(get(cuda.cuDevicePrimaryCtxRetain, ctypes.c_void_p, RANK)))
stream = get(cuda.cuStreamCreateWithPriority, ctypes.c_void_p, 1, 0)
memory = [get(cuda.cuMemAlloc_v2, ctypes.c_uint64, ctypes.c_size_t(ROOM)) for _ in range(2)]


def plan(kind, rows=1000, name="loop", **more):
    """Float32, of rows x 100."""
    made = _lib.Plan(kind, _lib.FLOAT32, (rows, 100), f"{name} {kind}", **more)
    made.work_at(RANK, stream.value)
    has_output = kind in (_lib.ALLREDUCE, _lib.BROADCAST)
    made.memory[0], made.memory[1] = memory[0].value, memory[1].value if has_output else 0
    return made


def run(*plans):
    """Together."""
    handles = _lib.enqueue_group(plans) if len(plans) > 1 else [plans[0].enqueue(*plans[0].memory)]
    statuses = [_lib.lib.hvd_wait(None, handle) for handle in handles]
    errors = [_lib.error_of(status) for status in statuses if status]
    for handle in handles:
        _lib.release(handle)
    if errors:
        raise errors[0]


def call(function, *arguments):
    return function(*arguments)


def run_in_set():
    """Rank 2 is not of it, and hears of the end in what it waits for meanwhile."""
    number = _lib.add_process_set([0, 1], call)
    for _ in range(3):
        if RANK < 2:
            run(plan(_lib.ALLREDUCE, process_set=number))
    run(_lib.Plan(_lib.BARRIER, _lib.UINT8, (), "meeting"))
    if _lib.remove_process_set(number, call):
        raise _lib.HorovodInternalError(_lib.last_error())


KINDS = {
    "allreduce": lambda: run(plan(_lib.ALLREDUCE)),
    "group": lambda: run(plan(_lib.ALLREDUCE, name="a"), plan(_lib.ALLREDUCE, name="b")),
    "adasum": lambda: run(plan(_lib.ALLREDUCE, reduce_op=_lib.ADASUM)),
    "broadcast": lambda: run(plan(_lib.BROADCAST, root_rank=1)),
    "broadcast_to_it": lambda: run(plan(_lib.BROADCAST, root_rank=0)),
    "allgather": lambda: run(plan(_lib.ALLGATHER)),
    "allgather_uneven": lambda: run(plan(_lib.ALLGATHER, 900 + RANK)),
    "reducescatter": lambda: run(plan(_lib.REDUCESCATTER, 999)),
    "reducescatter_uneven": lambda: run(plan(_lib.REDUCESCATTER, 1000)),
    "alltoall": lambda: run(plan(_lib.ALLTOALL, 999)),
    "process_set": run_in_set,
}


def error_of(operation, delay=0.0):
    try:
        run(_lib.Plan(_lib.BARRIER, _lib.UINT8, (), "all are here"))
        if RANK == 1 and delay > 0:
            threading.Timer(delay, os.kill, [os.getpid(), signal.SIGKILL]).start()
        while True:
            operation()
    except _lib.HorovodInternalError as error:
        return str(error)


def main():
    kind, delay = sys.argv[1], float(sys.argv[2])
    if _lib.lib.hvd_init(None):
        raise _lib.HorovodInternalError(_lib.last_error())
    told = {"error": error_of(KINDS[kind], delay), "at": time.monotonic()}
    told["after"] = error_of(KINDS["allreduce"])
    must(cuda.cuStreamSynchronize(stream))  # comes back: nothing hangs on the device
    _lib.lib.hvd_shutdown()
    for block in memory:
        must(cuda.cuMemFree_v2(block))
    must(cuda.cuStreamDestroy_v2(stream))
    told |= {what: nccl.fake_nccl_count(b"ncclComm" + what.encode()) for what in ("InitRankConfig", "Abort", "Destroy")}
    left = {what: cuda.fake_cuda_count(what.encode()) for what in
            ("live memory", "live pinned memory", "live stream", "live event")}  # fmt: skip
    left |= {what: nccl.fake_nccl_count(what.encode()) for what in ("live comm", "live registration")}
    told["left"] = {what: count for what, count in left.items() if count}
    report(told)


main()
