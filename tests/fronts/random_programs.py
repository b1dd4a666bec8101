"""Random programs of 1 to 20 collectives on each other's results, and what each rank gets of them by numpy; for the ranks of
test_random_programs.py."""

import faulthandler
import random

import numpy as np

ALL = ["allreduce", "max", "broadcast", "group", "allgather", "reducescatter", "alltoall"]
SHARE = 6  # rows of each rank's part of a value


def make_plan(seed, kinds):
    """(number, kind, whose result it takes) of each; -1 is the argument."""
    rng = random.Random(seed)
    return [(i, rng.choice(kinds), rng.randrange(-1, i)) for i in range(rng.randint(1, 20))]


def make_inputs(seed, size, dtype):
    return [np.random.default_rng([seed, rank]).normal(size=(SHARE * size, 2)).astype(dtype) for rank in range(size)]


def values_of(plan, collective, argument, rng):
    """The results by number. They are asked for in a random order, in which each comes after that which it takes."""
    values, left = {-1: argument}, list(plan)
    while left:
        step = rng.choice([step for step in left if step[2] in values])
        left.remove(step)
        number, kind, source = step
        values[number] = collective(kind, values[source], number)
    return values


def do(hvd, tile, kind, value, number, name):
    """One collective of a program, by a front; `tile(value, rows)` repeats a row."""
    if kind in ("allreduce", "max"):
        return hvd.allreduce(value, op=hvd.Max if kind == "max" else hvd.Average, name=name)
    if kind == "broadcast":
        return hvd.broadcast(value, number % hvd.size(), name=name)
    if kind == "group":
        return sum(hvd.grouped_allreduce([value, value + 1], name=name)) / 2
    if kind == "allgather":
        return hvd.allgather(value, name=name)[-SHARE * hvd.size() :]
    if kind == "alltoall":
        return hvd.alltoall(value, name=name)
    return tile(hvd.reducescatter(value, name=name)[:1], SHARE * hvd.size())


def expected(plan, inputs, rank):
    """One rank's results by number, by numpy."""
    size = len(inputs)
    values = {-1: inputs}
    for number, kind, source in plan:
        x = values[source]
        mean = np.mean(x, 0)
        if kind == "allreduce":
            y = [mean] * size
        elif kind == "max":
            y = [np.max(x, 0)] * size
        elif kind == "broadcast":
            y = [x[number % size]] * size
        elif kind == "group":
            y = [(2 * mean + 1) / 2] * size
        elif kind == "allgather":
            y = [x[-1]] * size
        elif kind == "alltoall":
            y = [np.concatenate([one[SHARE * r : SHARE * r + SHARE] for one in x]) for r in range(size)]
        else:
            y = [np.tile(mean[SHARE * r : SHARE * r + 1], [SHARE * size, 1]) for r in range(size)]
        values[number] = y
    return {number: values[number][rank] for number, *_ in plan}


def run_all(count, run):
    """run(seed) for each seed below count, and says where one hangs."""
    for seed in range(count):
        faulthandler.dump_traceback_later(300, exit=False)
        run(seed)
    faulthandler.cancel_dump_traceback_later()
    return count
