"""Random programs of 1 to 20 collectives on each other's results, in another order on each rank where they do not depend on one
another; runs as a rank (test_random_programs.py), with as many programs as it is told."""

import faulthandler
import os
import random
import sys

sys.modules["tensorflow"] = None
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np
from rank_side import report

import horovod.jax as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
KINDS = ["allreduce", "max", "broadcast", "group", "allgather", "reducescatter", "alltoall"]
ROWS = 6 * SIZE


def make_plan(seed):
    """(number, kind, whose result it takes) of each; -1 is the argument."""
    rng = random.Random(seed)
    return [(i, rng.choice(KINDS), rng.randrange(-1, i)) for i in range(rng.randint(1, 20))]


def collective(kind, value, i, name):
    if kind in ("allreduce", "max"):
        return hvd.allreduce(value, op=hvd.Max if kind == "max" else hvd.Average, name=name)
    if kind == "broadcast":
        return hvd.broadcast(value, i % SIZE, name=name)
    if kind == "group":
        return sum(hvd.grouped_allreduce([value, value + 1], name=name)) / 2
    if kind == "allgather":
        return hvd.allgather(value, name=name)[-ROWS:]
    if kind == "alltoall":
        return hvd.alltoall(value, name=name)
    return jnp.tile(hvd.reducescatter(value, name=name)[:1], (ROWS, 1))


def expected(plan, inputs):
    """What each rank gets, by numpy."""
    values = {-1: inputs}
    for i, kind, source in plan:
        x = values[source]
        mean = np.mean(x, 0)
        if kind == "allreduce":
            y = [mean] * SIZE
        elif kind == "max":
            y = [np.max(x, 0)] * SIZE
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
    return [values[i][RANK] for i, *_ in plan]


def run(seed):
    plan, own = make_plan(seed), random.Random(seed * 1000 + RANK)
    shown = own.sample(range(len(plan)), len(plan))

    @jax.jit
    def program(x):
        values, left = {-1: x}, list(plan)
        while left:
            step = own.choice([step for step in left if step[2] in values])
            left.remove(step)
            i, kind, source = step
            values[i] = collective(kind, values[source], i, f"program_{seed}_{i}")
        # XLA orders a program from its results back, so these are in another order on each rank too.
        return {f"{number:02}": values[i] for number, i in enumerate(shown)}

    inputs = [np.random.default_rng([seed, rank]).normal(size=(ROWS, 2)).astype(np.float32) for rank in range(SIZE)]
    right = expected(plan, inputs)
    for _ in range(2):
        results = program(inputs[RANK])
        for number, i in enumerate(shown):
            np.testing.assert_allclose(results[f"{number:02}"], right[i], rtol=1e-5, atol=1e-5)


count = int(sys.argv[1])
for seed in range(count):
    faulthandler.dump_traceback_later(300, exit=False)  # says where it hangs
    run(seed)
    if seed % 50 == 49:
        jax.clear_caches()
faulthandler.cancel_dump_traceback_later()
report({"jit": count})
