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

from horovod.common import _old_keras
from horovod.common.exceptions import HorovodInternalError, HorovodVersionMismatchError, HostsUpdatedInterrupt
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
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
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    ccl_built,
    check_num_rank_power_of_2,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    gpu_available,
    grouped_allgather,
    handle_average_backwards_compatibility,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_rank_op,
    local_size,
    local_size_op,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    process_set_included_op,
    rank,
    rank_op,
    rocm_built,
    shutdown,
    size,
    size_op,
    start_timeline,
    stop_timeline,
    sycl_built,
)
from horovod.tensorflow.util import _executing_eagerly as _executing_eagerly

from horovod.tensorflow import elastic  # isort: skip  it uses what is above


# Modules of this package that come when they are asked for. Horovod has `hvd.keras` once a script has imported it, or
# has made a DistributedOptimizer of Keras. Nothing here uses it.
_PARTS = {"keras"}


def __getattr__(name: str) -> Any:
    """What needs Keras comes when it is asked for, as importing Keras takes seconds."""
    if name == "SyncBatchNormalization":
        from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    if name == "tf":  # Horovod's module leaves TensorFlow there, and scripts use it
        return _tf
    if name in _PARTS:
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if not _IS_LEGACY:  # legacy Keras has these words itself
    _old_keras.accept(_tf.keras, _why_not_compiled)

__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
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
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "handle_average_backwards_compatibility",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_ops",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
    "sycl_built",
    "util",
]
