"""A compiled program fails on every rank after it was started, the script handles that, and the interpreter ends in order."""

import os
import sys

sys.modules["tensorflow"] = None
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp

import horovod.jax as hvd

hvd.init()


@jax.jit
def program(square):
    for _ in range(20):  # XLA starts a program of so many steps and goes on
        square = jnp.sin(square @ square)
    return hvd.allreduce(square, op=hvd.Sum, name="g")


try:
    jax.block_until_ready(program(jnp.ones((90 + hvd.rank(), 90 + hvd.rank()))))
except jax.errors.JaxRuntimeError as error:
    print("handled", error)
if "shutdown" in sys.argv:
    hvd.shutdown()
    assert jax.jit(lambda v: v * 2)(jnp.ones(1))[0] == 2
