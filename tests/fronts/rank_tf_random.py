"""Random programs in another order on each rank, in functions that XLA compiles and others; runs as a rank
(test_random_programs.py), with as many programs of each as it is told."""

import functools
import os
import random
import sys

import lean_imports  # noqa: F401  (first)
import numpy as np
import tensorflow as tf
from random_programs import ALL, do, expected, make_inputs, make_plan, run_all, values_of
from rank_side import report

if "HVD_TEST_ONE_THREAD" in os.environ:
    tf.config.threading.set_inter_op_parallelism_threads(1)

import horovod.tensorflow as hvd

hvd.init()
COMPILED = ["allreduce", "max", "broadcast", "group"]


def run(compiled, seed):
    plan, own = make_plan(seed, COMPILED if compiled else ALL), random.Random(seed * 1000 + hvd.rank())

    def collective(kind, value, number):
        return do(hvd, lambda row, rows: tf.tile(row, [rows, 1]), kind, value, number, f"program_{seed}_{number}")

    @tf.function(jit_compile=compiled)
    def program(x):
        values = values_of(plan, collective, x, own)
        return tf.add_n([tf.reduce_sum(values[number]) for number, *_ in plan])

    inputs = make_inputs(seed, hvd.size(), np.float64)
    right = sum(np.sum(value) for value in expected(plan, inputs, hvd.rank()).values())
    for _ in range(2):
        np.testing.assert_allclose(float(program(tf.constant(inputs[hvd.rank()]))), right, rtol=1e-9, atol=1e-9)


ways = {"function": (False, int(sys.argv[1])), "jit_compile": (True, int(sys.argv[2]))}
report({way: run_all(count, functools.partial(run, compiled)) for way, (compiled, count) in ways.items() if count})
