"""horovod.jax beside jax.distributed, whose coordinator hvdrun names."""

import os
import sys

sys.modules["tensorflow"] = None
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax

jax.distributed.initialize()
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rank_side import raises, report

import horovod.jax as hvd

hvd.init()
assert jax.process_count() == hvd.size() and jax.process_index() == hvd.rank()
mesh = Mesh(np.array(jax.devices()), ("all",))
everything = jax.make_array_from_callback((2 * hvd.size(),), NamedSharding(mesh, PartitionSpec("all")), lambda index: np.ones(2, np.float32))
total = jax.jit(lambda v: v.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))(everything)
own = jax.jit(lambda v: hvd.allreduce(v, op=hvd.Sum))(jnp.full(3, hvd.rank() + 1.0))
refused = raises(ValueError, hvd.allreduce, everything)
report({"theirs": float(total.addressable_data(0)), "ours": own.tolist(), "refused": refused})
