"""Many collectives of one compiled program are refused: XLA starts no further ones then, which may be others on each rank."""

import os
import sys
import time

sys.modules["tensorflow"] = None
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp

import horovod.jax as hvd

hvd.init()
program = jax.jit(lambda v: [hvd.allreduce(jnp.sin(v + i) @ v, op=hvd.Sum, name=f"g{i}") for i in range(20)])
try:
    jax.block_until_ready(program(jnp.ones((100 + hvd.rank(), 100 + hvd.rank()))))
except jax.errors.JaxRuntimeError as error:
    print("handled", error)
# Where ranks waited for different collectives, the job was left, and is made again.
hvd.shutdown()
hvd.init()
print("sum", float(jax.jit(lambda v: hvd.allreduce(v, op=hvd.Sum, name="again"))(jnp.ones(()))))

# A run that was refused is not held against the next one, which may take as long as it likes.
single = jax.jit(lambda v: hvd.allreduce(v, op=hvd.Sum, name="single"))
try:
    jax.block_until_ready(single(jnp.ones(1 + hvd.rank())))
except jax.errors.JaxRuntimeError as error:
    print("handled", error)
if hvd.rank() == 1:
    time.sleep(3)
print("late sum", float(single(jnp.ones(()))))
