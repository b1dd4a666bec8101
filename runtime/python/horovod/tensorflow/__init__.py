"""Distributed training with TensorFlow 2.13 and later.

    import horovod.tensorflow as hvd
    hvd.init()
    ...
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables))
    if first_batch:
        hvd.broadcast_variables(variables, root_rank=0)

Start it with `hvdrun -np 4 python script.py`. Without hvdrun a script is a job of one rank.
"""

import importlib as _importlib
from typing import Any

import tensorflow as _tf

from horovod.common import _exports, _old_keras
from horovod.common._exports import *
from horovod.tensorflow import mpi_ops, util
from horovod.tensorflow._optimizer import DistributedOptimizer
from horovod.tensorflow._optimizer import _DistributedOptimizer as _DistributedOptimizer  # programs say isinstance with it
from horovod.tensorflow._optimizer import _LegacyOptimizer as _LegacyOptimizer  # programs import these two from here
from horovod.tensorflow._reduce import _make_allreduce_grads_fn as _make_allreduce_grads_fn  # as above
from horovod.tensorflow._reduce import allreduce, grouped_allreduce, grouped_reducescatter, reducescatter
from horovod.tensorflow._tape import DistributedGradientTape, PartialDistributedGradientTape
from horovod.tensorflow._which_keras import IS_LEGACY as _IS_LEGACY
from horovod.tensorflow._xla import why_not_compiled as _why_not_compiled
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.mpi_ops import _allreduce as _allreduce
from horovod.tensorflow.mpi_ops import (
    allgather,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    check_num_rank_power_of_2,
    gpu_available,
    grouped_allgather,
    handle_average_backwards_compatibility,
    join,
    local_rank_op,
    local_size_op,
    nccl_built,  # noqa: F401  (in place of the one that every front has)
    process_set_included_op,
    rank_op,
    size_op,
    sycl_built,
)
from horovod.tensorflow.util import _executing_eagerly as _executing_eagerly

from horovod.tensorflow import elastic  # isort: skip  it uses what is above


def __getattr__(name: str) -> Any:
    """What needs Keras comes when it is asked for, as importing Keras takes seconds."""
    if name == "SyncBatchNormalization":
        from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    if name == "tf":  # Horovod's module leaves TensorFlow there, and scripts use it
        return _tf
    if name == "keras":  # Horovod has it once a script has imported it, or has made a DistributedOptimizer of Keras
        return _importlib.import_module(f"{__name__}.keras")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if not _IS_LEGACY:  # legacy Keras has these words itself
    _old_keras.accept(_tf.keras, _why_not_compiled)

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "check_num_rank_power_of_2",
    "elastic",
    "gpu_available",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "handle_average_backwards_compatibility",
    "join",
    "local_rank_op",
    "local_size_op",
    "mpi_ops",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
    "sycl_built",
    "util",
]
__all__ += _exports.__all__
