"""A rank ends in the middle of the others' compiled program: they get an error that names it, and can still compute."""

import os
import sys
import time

sys.modules["tensorflow"] = None
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
from rank_side import meet, report

import horovod.jax as hvd

hvd.init()
program = jax.jit(lambda v: hvd.allreduce(jnp.sin(v), op=hvd.Sum, name="g"))
x = jnp.ones(4)
jax.block_until_ready(program(x))
other = jax.jit(lambda v: v * 2)
meet(hvd.barrier)
if hvd.rank() == hvd.size() - 1:
    os._exit(3)
begin = time.monotonic()
try:
    jax.block_until_ready(program(x))
    said = "nothing"
except jax.errors.JaxRuntimeError as error:
    said = str(error)
seconds = time.monotonic() - begin
report({"said": said, "seconds": seconds, "goes on": float(other(x)[0]), "eager": ""})
