"""One failure of a rank, by argument; runs as a rank (test_failure.py)."""

import asyncio
import os
import pathlib
import signal
import sys
import threading
import time

import torch
from rank_side import meet, report

import horovod.torch as hvd
from horovod.common import _wait
from horovod.common.exceptions import HorovodInternalError


def interrupt_wait(then=lambda: None):
    """Ctrl-C for the main thread in the next of its waits, however late it comes there; then something else."""

    def interrupt():
        while not _wait._watcher.is_waiting:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
        then()

    threading.Thread(target=interrupt).start()


def die_or_wait(end):
    """Rank 1 ends by `end`; what the others' next operation says."""
    hvd.init()
    try:
        hvd.barrier()  # out of which one who is slow may come when rank 1 has ended
        if hvd.rank() == 1:
            end()
        while True:
            hvd.allreduce(torch.ones(1000), name="loop")
    except HorovodInternalError as error:
        told = {"error": str(error)}
    try:
        hvd.allreduce(torch.ones(1), name="after")
        told["after"] = "no error"
    except HorovodInternalError as error:
        told["after"] = str(error)
    hvd.shutdown()
    report(told)


def wait_interrupted(wait):
    """Ctrl-C on rank 0 in a wait for rank 1, which does not come."""
    if hvd.rank() == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background may have it ignored
        interrupt_wait()
        try:
            wait()
            report({"error": "no KeyboardInterrupt"})
        except KeyboardInterrupt:
            report({"initialized": hvd.is_initialized()})
    else:
        try:
            hvd.allreduce(torch.ones(4), name="other")
        except HorovodInternalError as error:
            report({"error": str(error)})
    hvd.shutdown()


def interrupt():
    hvd.init()
    meet(hvd.barrier)
    wait_interrupted(lambda: hvd.allreduce(torch.ones(4), name="stuck"))


def interrupt_future():
    """The wait is for a future of torch.distributed, of a callback hung on one even."""
    import torch.distributed as dist

    import horovod.torch.backend  # noqa: F401

    folder = os.environ["HVD_TEST_REPORTS"]
    rank, size = int(os.environ["HVD_RANK"]), int(os.environ["HVD_SIZE"])
    dist.init_process_group("hvd", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    meet(dist.barrier)
    wait_interrupted(lambda: dist.all_reduce(torch.ones(4), async_op=True).get_future().then(lambda done: done.value()).wait())


def killed_in_backward():
    """Rank 1 ends in a backward pass of DistributedDataParallel; the others make it, and one whose gradients a hook averages."""
    import torch.distributed as dist

    import horovod.torch.backend  # noqa: F401

    dist.init_process_group("hvd", store=dist.HashStore(), rank=int(os.environ["HVD_RANK"]), world_size=int(os.environ["HVD_SIZE"]))
    plain, hooked = (torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2)) for _ in range(2))
    hooked.register_comm_hook(
        None, lambda _, bucket: dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])
    )
    loss = plain(torch.ones(3, 4)).sum()
    meet(dist.barrier)
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    told = []
    for backward in (loss.backward, lambda: hooked(torch.ones(3, 4)).sum().backward()):
        try:
            backward()
            told.append("no error")
        except RuntimeError as error:
            told.append(str(error))
    dist.destroy_process_group()
    hvd.shutdown()
    report(told)


def interrupt_step():
    """Ctrl-C in a step, while rank 1 does not come; the optimizer can be used again when the job was joined anew."""
    hvd.init()
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    meet(hvd.barrier)
    if hvd.rank() == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupt_wait()
        try:
            weight.sum().backward()
            optimizer.step()
        except KeyboardInterrupt:
            pass
    else:
        try:
            hvd.allreduce(torch.ones(4), name="other")
        except HorovodInternalError:
            hvd.shutdown()
    was_initialized = hvd.is_initialized()
    hvd.init()
    optimizer.zero_grad()
    (weight.sum() * (hvd.rank() + 1)).backward()
    optimizer.step()
    report({"initialized": was_initialized, "weight": weight.tolist()})
    hvd.barrier()
    hvd.shutdown()


def interrupt_cell():
    """As in a notebook: an event loop has the wake-up descriptor, a cell runs inside of it, and Ctrl-C comes while it waits for
    a handle. The next cell joins the job anew."""
    hvd.init()
    meet(hvd.barrier)
    told = {}

    def first_cell():
        handle = hvd.allreduce_async(torch.ones(4), name="of rank 0")
        interrupt_wait()
        try:
            hvd.synchronize(handle)
        except KeyboardInterrupt:
            told["interrupted"] = True

    def next_cell():
        told["initialized"] = hvd.is_initialized()
        hvd.init()
        told["total"] = hvd.allreduce(torch.ones(1), op=hvd.Sum).item()

    if hvd.rank() == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        time.sleep(0.2)  # a notebook's loop is there for longer than a descriptor is trusted after the last wait
        loop = asyncio.new_event_loop()
        loop.add_signal_handler(signal.SIGUSR1, lambda: None)  # with which a loop takes the descriptor
        loop.call_soon(first_cell)
        loop.call_soon(next_cell)
        loop.call_soon(loop.stop)
        loop.run_forever()
        # The loop still learns of its own signals.
        loop.add_signal_handler(signal.SIGUSR1, loop.stop)
        os.kill(os.getpid(), signal.SIGUSR1)
        loop.run_forever()
        loop.close()
    else:
        try:
            hvd.allreduce(torch.ones(4), name="of rank 1")
        except HorovodInternalError as error:
            told["error"] = str(error)
        hvd.shutdown()
        next_cell()
    report(told)
    hvd.barrier()
    hvd.shutdown()


def interrupt_handled():
    """A handler of the script's own runs when the operation has ended, and costs the job nothing."""
    hvd.init()
    hvd.barrier()
    caught = []
    interrupted = pathlib.Path(os.environ["HVD_TEST_REPORTS"], "interrupted")
    if hvd.rank() == 0:
        signal.signal(signal.SIGINT, lambda *_: caught.append(1))
        interrupt_wait(interrupted.touch)
    else:
        while not interrupted.exists():
            time.sleep(0.01)
        time.sleep(2 * _wait._GRACE_S)  # in which nobody may leave the job
    total = hvd.allreduce(torch.ones(1), op=hvd.Sum).item()
    report({"total": total, "caught": len(caught)})
    hvd.shutdown()


def again():
    """20 jobs one after the other in the same processes."""
    for number in range(20):
        hvd.init()
        total = hvd.allreduce(torch.full((5,), float(hvd.rank() + number)), op=hvd.Sum, name="x")
        assert total[0] == sum(r + number for r in range(hvd.size()))
        hvd.barrier()
        hvd.shutdown()
    report("ok")


def passes():
    """In each step another rank makes one backward pass more."""
    hvd.init()
    model = torch.nn.Linear(4, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    try:
        for step in range(4):
            optimizer.zero_grad()
            for _ in range(2 if step % 2 == hvd.rank() else 1):
                model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
    except HorovodInternalError as error:
        report({"error": str(error)})


KINDS = {
    "passes": passes,
    "killed": lambda: die_or_wait(lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "exited": lambda: die_or_wait(lambda: sys.exit(0)),
    "shutdown": lambda: die_or_wait(lambda: (hvd.shutdown(), report({}), sys.exit(0))),
    "killed_in_backward": killed_in_backward,
    "interrupt": interrupt,
    "interrupt_future": interrupt_future,
    "interrupt_step": interrupt_step,
    "interrupt_cell": interrupt_cell,
    "interrupt_handled": interrupt_handled,
    "again": again,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]]()
