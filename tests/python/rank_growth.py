"""Many jobs one after the other, or many steps in one, in the same processes; reports what has grown. Runs as a rank
(test_growth.py)."""

import gc
import os
import random
import sys
import threading
import time

import torch
from holdings import holdings
from patience import PATIENCE
from rank_side import report

import horovod.torch as hvd


def state(early=None):
    """`early`: the state before. A thread that has been joined may have its number for a moment still."""
    gc.collect()
    deadline = time.monotonic() + PATIENCE
    while early and len(os.listdir("/proc/self/task")) > early["tasks"] and time.monotonic() < deadline:
        time.sleep(0.01)
    return {**holdings(), "threads": threading.active_count()}


def cycles(count):
    """Jobs; what there is outside them, after a tenth of them and at the end."""
    states = []
    for number in range(count):
        hvd.init()
        total = hvd.allreduce(torch.full((5,), float(hvd.rank() + number)), op=hvd.Sum, name="x")
        assert total[0] == sum(r + number for r in range(hvd.size()))
        if number % 50 == 0:
            hvd.allgather(torch.ones(1000), name=f"of {number}")
        hvd.barrier()
        hvd.shutdown()
        if number + 1 in (count // 10, count):
            states.append(state(*states))
    return states


def steps(count):
    """Steps of random shapes under names old and new; what there is after a third of them and at the end."""
    hvd.init()
    numbers = random.Random(3)  # the same on every rank
    states = []
    for number in range(count):
        shape = [numbers.randrange(1, 40) for _ in range(numbers.randrange(1, 4))]
        name = numbers.choice([None, "often", f"once.{number}"])
        kind = numbers.randrange(5)
        x = torch.ones(shape)
        if kind == 0:
            assert hvd.allreduce(x, op=hvd.Sum, name=name).flatten()[0] == hvd.size()
        elif kind == 1:
            hvd.allgather(x, name=name)
        elif kind == 2:
            hvd.grouped_allreduce([x, x], name=name)
        elif kind == 3:
            hvd.reducescatter(x, name=name)
        else:
            hvd.synchronize(hvd.broadcast_async_(x, 0, name=name))
        if number + 1 in (count // 3, count):
            states.append(state(*states))
    hvd.barrier()
    hvd.shutdown()
    return states


if __name__ == "__main__":
    report({"cycles": cycles, "steps": steps}[sys.argv[1]](int(sys.argv[2])))
