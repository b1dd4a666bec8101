"""DistributedOptimizer of horovod.tensorflow.keras with Keras 3."""

from typing import Any, Optional

from horovod import _keras3
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.mpi_ops import Average


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Optional[int] = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """`horovod.keras.DistributedOptimizer`, whose arguments after `op` Horovod has in another order for tf.keras."""
    return _keras3.DistributedOptimizer(
        optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op, num_groups,
        groups, backward_passes_per_step, average_aggregated_gradients, process_set, scale_local_gradients,
    )  # fmt: skip
