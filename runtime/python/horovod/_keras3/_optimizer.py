"""DistributedOptimizer of horovod.keras, and what a script with it asks of all ranks."""

from typing import Any, Optional

import keras
import numpy as np

from horovod.common import _arrays, _lib, basics
from horovod.common._keras_optimizer import Average, distributed
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod._keras3 import _backend
from horovod._keras3._variables import unique


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = _backend.Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Optional[int] = None,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """The Keras 3 optimizer itself, whose gradients are averaged over all ranks from now on. On JAX, PyTorch and TensorFlow, with
    jit_compile and without, with mixed precision, clipping, gradient_accumulation_steps and MultiOptimizer.

    Args:
        optimizer: a keras.optimizers.Optimizer; a name or configuration is made one.
        name: part of the names of its collectives, where two optimizers are used at once.
        device_dense, device_sparse: are there for Horovod's scripts, and change nothing.
        compression: one of hvd.Compression, for gradients on their way.
        sparse_as_dense: gradients of embeddings, which on TensorFlow are the rows that a batch has used, are reduced as whole
            tables. On JAX and PyTorch they are dense anyway.
        gradient_predivide_factor: f divides gradients by f before they are summed, and by size / f after.
        op: hvd.Average or hvd.Sum.
        num_groups, groups: in how many groups gradients travel; default: in one.
        backward_passes_per_step: so many gradients are summed up before they are reduced and a step is made. It is
            Keras' own gradient_accumulation_steps, and is saved as such.
        average_aggregated_gradients: divides that sum by their number.
        process_set: over whose ranks.
        scale_local_gradients: gradients of variables that `register_local_var` names are divided by the number of ranks.

    Raises:
        ValueError: an argument is wrong, or it is a DistributedOptimizer already.
        RuntimeError: keras.distribution is active.
    """
    return distributed(
        optimizer, name, _backend.reduction(sparse_as_dense), _backend.scale_local, op, compression, gradient_predivide_factor,
        groups if groups is not None else num_groups, backward_passes_per_step, average_aggregated_gradients, process_set, (),
        scale_local_gradients,
    )  # fmt: skip


def PartialDistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = _backend.Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Optional[int] = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """`DistributedOptimizer`, but for the layers `local_layers` (one or several), whose gradients each rank keeps to itself."""
    layers = [] if local_layers is None else [local_layers] if isinstance(local_layers, keras.layers.Layer) else list(local_layers)
    for layer in layers:
        if not isinstance(layer, keras.layers.Layer):
            raise ValueError(f"local_layers: {type(layer).__name__} is no keras.layers.Layer")
    return distributed(
        optimizer, name, _backend.reduction(sparse_as_dense), _backend.scale_local, op, compression, gradient_predivide_factor, groups,
        backward_passes_per_step, average_aggregated_gradients, process_set, unique(layers), scale_local_gradients,
    )  # fmt: skip


def steps_for_all(steps: int, process_set: ProcessSet = global_process_set) -> int:
    """The least number of steps that a rank has, for `fit(steps_per_epoch=...)`: a rank that has more would wait for ever."""
    basics.size()
    (least,) = _arrays.allreduce([np.int64(steps)], ["steps_for_all"], _lib.MIN, process_set=process_set)
    return int(least)
