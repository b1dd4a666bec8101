"""LocalGradientAggregationHelperEager, under Horovod's name and with its arguments, for optimizers of programs that build on it."""

from typing import Any, Callable, List

from horovod.tensorflow.gradient_aggregation import ScaledAggregation

__all__ = ["LocalGradientAggregationHelperEager"]


class LocalGradientAggregationHelperEager(ScaledAggregation):
    """Adds gradients up in variables, and reduces them at every n-th call. Arguments: as in horovod.tensorflow.gradient_aggregation.

    Args:
        local_gradients_scaling_factor: by which gradients of local variables are divided when the others are reduced.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., List[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        local_gradients_scaling_factor: float = 1.0,
    ) -> None:
        super().__init__(backward_passes_per_step, allreduce_func, sparse_as_dense, average_aggregated_gradients)
        self.local_gradients_scaling_factor = float(local_gradients_scaling_factor)
        self._divided_by = None if local_gradients_scaling_factor == 1.0 else self.local_gradients_scaling_factor
