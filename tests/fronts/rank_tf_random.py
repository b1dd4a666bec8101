"""Random programs of 1 to 20 collectives on each other's results; runs as a rank (test_random_programs.py), with as many programs
as it is told, for each way to execute. In functions that XLA does not compile, in another order on each rank where they do not
depend on one another; XLA makes an order of its own, by which memory is used again, so that ranks write the same there."""

import faulthandler
import os
import random
import sys

import numpy as np
import tensorflow as tf
from rank_side import report

if "HVD_TEST_ONE_THREAD" in os.environ:
    tf.config.threading.set_inter_op_parallelism_threads(1)

import horovod.tensorflow as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
COMPILED = ["allreduce", "broadcast", "group"]
ALL = [*COMPILED, "allgather", "reducescatter", "alltoall"]
ROWS = 6 * SIZE


def make_plan(seed, kinds):
    """(number, kind, whose result it takes) of each; -1 is the argument."""
    rng = random.Random(seed)
    return [(i, rng.choice(kinds), rng.randrange(-1, i)) for i in range(rng.randint(1, 20))]


def collective(kind, value, i, name):
    if kind == "allreduce":
        return hvd.allreduce(value, op=hvd.Average, name=name)
    if kind == "broadcast":
        return hvd.broadcast(value, i % SIZE, name=name)
    if kind == "group":
        return sum(hvd.grouped_allreduce([value, value + 1], name=name)) / 2
    if kind == "allgather":
        return hvd.allgather(value, name=name)[-ROWS:]
    if kind == "alltoall":
        return hvd.alltoall(value, name=name)
    return tf.tile(hvd.reducescatter(value, name=name)[:1], [ROWS, 1])


def expected(plan, inputs):
    """What each rank gets, by numpy."""
    values = {-1: inputs}
    for i, kind, source in plan:
        x = values[source]
        mean = np.mean(x, 0)
        if kind == "allreduce":
            y = [mean] * SIZE
        elif kind == "broadcast":
            y = [x[i % SIZE]] * SIZE
        elif kind == "group":
            y = [(2 * mean + 1) / 2] * SIZE
        elif kind == "allgather":
            y = [x[-1]] * SIZE
        elif kind == "alltoall":
            y = [np.concatenate([one[6 * rank : 6 * rank + 6] for one in x]) for rank in range(SIZE)]
        else:
            y = [np.tile(mean[6 * rank : 6 * rank + 1], [ROWS, 1]) for rank in range(SIZE)]
        values[i] = y
    return sum(np.sum(values[i][RANK]) for i, *_ in plan)


def run(seed, compiled):
    plan, own = make_plan(seed, COMPILED if compiled else ALL), random.Random(seed * 1000 + (0 if compiled else RANK))

    @tf.function(jit_compile=compiled)
    def program(x):
        values, left = {-1: x}, list(plan)
        while left:
            step = own.choice([step for step in left if step[2] in values])
            left.remove(step)
            i, kind, source = step
            values[i] = collective(kind, values[source], i, f"program_{seed}_{i}")
        return tf.add_n([tf.reduce_sum(values[i]) for i, *_ in plan])

    inputs = [np.random.default_rng([seed, rank]).normal(size=(ROWS, 2)) for rank in range(SIZE)]
    right = expected(plan, inputs)
    for _ in range(2):
        np.testing.assert_allclose(float(program(tf.constant(inputs[RANK]))), right, rtol=1e-9, atol=1e-9)


ways = {"function": (False, int(sys.argv[1])), "jit_compile": (True, int(sys.argv[2]))}
done = {}
for way, (compiled, count) in ways.items():
    for seed in range(count):
        faulthandler.dump_traceback_later(300, exit=False)  # says where it hangs
        run(seed, compiled)
        done[way] = seed + 1
faulthandler.cancel_dump_traceback_later()
report(done)
