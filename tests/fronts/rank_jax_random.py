"""Random programs in another order on each rank; runs as a rank (test_random_programs.py), with as many programs as it is told."""

import os
import random
import sys

sys.modules["tensorflow"] = None
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np
from random_programs import ALL, do, expected, make_inputs, make_plan, run_all, values_of
from rank_side import report

import horovod.jax as hvd

hvd.init()


def run(seed):
    plan, own = make_plan(seed, ALL), random.Random(seed * 1000 + hvd.rank())
    shown = own.sample(range(len(plan)), len(plan))

    def collective(kind, value, number):
        return do(hvd, lambda row, rows: jnp.tile(row, (rows, 1)), kind, value, number, f"program_{seed}_{number}")

    @jax.jit
    def program(x):
        values = values_of(plan, collective, x, own)
        # XLA orders a program from its results back, so these are in another order on each rank too.
        return {f"{place:02}": values[number] for place, number in enumerate(shown)}

    inputs = make_inputs(seed, hvd.size(), np.float32)
    right = expected(plan, inputs, hvd.rank())
    for _ in range(2):
        results = program(inputs[hvd.rank()])
        for place, number in enumerate(shown):
            np.testing.assert_allclose(results[f"{place:02}"], right[number], rtol=1e-5, atol=1e-5)
    if seed % 50 == 49:
        jax.clear_caches()


report({"jit": run_all(int(sys.argv[1]), run)})
