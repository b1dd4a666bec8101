"""Distributed training with tf.keras: Keras 3 on TensorFlow, or legacy Keras where TF_USE_LEGACY_KERAS=1.

    import horovod.tensorflow.keras as hvd
    hvd.init()
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(1e-3 * hvd.size()))
    model.compile(optimizer=optimizer, loss=...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

Start it with `hvdrun -np 4 python script.py`. Without hvdrun a script is a job of one rank.
"""

from typing import Any, Optional

from horovod.common import _exports
from horovod.common._exports import *
from horovod.tensorflow import _reduce, functions, mpi_ops
from horovod.tensorflow._which_keras import IS_LEGACY, check_backend
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import allgather_object, broadcast_object, broadcast_variables
from horovod.tensorflow.keras import callbacks, elastic
from horovod.tensorflow.mpi_ops import barrier, nccl_built, sycl_built  # noqa: F401  (nccl_built in place of every front's)
from horovod.tensorflow.util import evaluated

if IS_LEGACY:
    from horovod.tensorflow._legacy_keras import DistributedOptimizer, PartialDistributedOptimizer, load_model
else:
    from horovod._keras3 import PartialDistributedOptimizer, load_model
    from horovod.tensorflow.keras._optimizer import DistributedOptimizer

check_backend()

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "elastic",
    "load_model",
    "reducescatter",
    "sycl_built",
]
__all__ += _exports.__all__


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Any = Compression.none,
) -> Any:
    """The reduction of a value over all ranks, as a tensor; in a graph its value."""
    return evaluated(
        _reduce.allreduce(
            value,
            average=average,
            name=name,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            compression=compression,
        )
    )


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """All ranks' values behind each other along dimension 0."""
    return evaluated(mpi_ops.allgather(value, name))


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """The root's value."""
    return evaluated(mpi_ops.broadcast(value, root_rank, name))


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    """This rank's rows of the reduction."""
    return evaluated(_reduce.reducescatter(value, op=op, name=name))


def broadcast_global_variables(root_rank: int) -> Any:
    """Gives all ranks' global variables the root's values; for graphs of TensorFlow 1.

    Raises:
        RuntimeError: outside of a graph there are no global variables.
    """
    if mpi_ops._executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. Please use "
            "`hvd.callbacks.BroadcastGlobalVariablesCallback(0)` instead."
        )
    return evaluated(functions.broadcast_global_variables(root_rank))
