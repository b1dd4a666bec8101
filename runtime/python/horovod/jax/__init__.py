"""Distributed training with JAX.

    import horovod.jax as hvd
    hvd.init()
    params = hvd.broadcast_parameters(params, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optax.adam(1e-3))

Start it with `hvdrun -np 4 python script.py`. Without hvdrun a script is a job of one rank. Every operation works inside
jax.jit, grad, vmap, scan and cond, and outside. jax.distributed is not needed. It does no harm but in elastic
jobs, where JAX ends all ranks that have called jax.distributed.initialize when one of them dies.
"""

import jax as _jax

if tuple(_jax.__version_info__) < (0, 5, 0):
    raise ImportError(f"horovod.jax needs JAX 0.5 or later, and this is {_jax.__version__}; pip install -U jax")

from horovod.common import _exports
from horovod.common._exports import *
from horovod.jax import _gpus, elastic
from horovod.jax._ops import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    reducescatter,
)
from horovod.jax._optimizer import DistributedOptimizer, grad, metric_average, sync_batch_stats, value_and_grad
from horovod.jax._shutdown import init, shutdown  # noqa: F401  (in place of those that every front has)
from horovod.jax.compression import Compression
from horovod.jax.functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters

_gpus.take_own()

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
    "grad",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "metric_average",
    "reducescatter",
    "sync_batch_stats",
    "value_and_grad",
]
__all__ += _exports.__all__
