"""DistributedOptimizer of horovod.tensorflow for optimizers of the Keras that tf.keras is."""

import functools
from typing import Any, Optional

from horovod.common.process_sets import ProcessSet
from horovod.tensorflow import _legacy_keras
from horovod.tensorflow._reduce import Groups, keras_allreduce, scale_local
from horovod.tensorflow._which_keras import IS_LEGACY, check_backend


def distributed(
    optimizer: Any,
    name: Optional[str],
    compression: Any,
    sparse_as_dense: bool,
    gradient_predivide_factor: float,
    op: int,
    groups: Groups,
    backward_passes_per_step: int,
    average_aggregated_gradients: bool,
    process_set: ProcessSet,
    scale_local_gradients: bool,
) -> Any:
    """The optimizer itself, whose gradients are reduced over the ranks from now on."""
    if IS_LEGACY:
        return _legacy_keras.DistributedOptimizer(
            optimizer,
            name,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
    check_backend()
    from horovod.common import _keras_optimizer  # needs Keras 3, which legacy Keras does without

    return _keras_optimizer.distributed(
        optimizer, name, functools.partial(keras_allreduce, sparse_as_dense=sparse_as_dense), scale_local, op, compression,
        gradient_predivide_factor, groups, backward_passes_per_step, average_aggregated_gradients, process_set, (),
        scale_local_gradients,
    )  # fmt: skip
