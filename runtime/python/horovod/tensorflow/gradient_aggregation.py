"""LocalGradientAggregationHelper, under Horovod's name and with its arguments, for optimizers of programs that build on it: what
DistributedOptimizer has for backward_passes_per_step."""

from typing import Any, Callable, List, Optional

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._aggregation import LocalAggregation
from horovod.tensorflow._reduce import scale_locals

__all__ = ["LocalGradientAggregationHelper", "apply_op_to_not_none_tensors", "get_not_none_from_list"]


def get_not_none_from_list(tensor_list: List[Any]) -> List[Any]:
    """What of a list is there."""
    return [tensor for tensor in tensor_list if tensor is not None]


def apply_op_to_not_none_tensors(tensor_op: Callable[..., Any], tensors: List[Any], *args: Any) -> List[Any]:
    """The results of an operation; None stays None."""
    return [None if tensor is None else tensor_op(tensor, *args) for tensor in tensors]


class ScaledAggregation(LocalAggregation):
    """LocalAggregation whose local gradients are divided, and whose apply_gradients() is called as Horovod's."""

    _divided_by: Any = None  # a number, or the process set by the number of whose ranks

    def _reduced(self, values: List[Any], variables: List[Any]) -> List[Any]:
        results = super()._reduced(values, variables)
        if self._divided_by is None:
            return results
        return scale_locals(results, variables, self._local, self._divided_by)

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the closure after every n-th compute_gradients().

        Args:
            optimizer: its `iterations` grow in the other calls, unless `global_step` does.
            args: the first are the pairs of gradients and variables.
            kwargs: of which `global_step` counts the calls.
        """
        steps = kwargs.get("global_step")
        if steps is None:
            steps = getattr(optimizer, "iterations", None)
        pairs = list(args[0]) if args else []
        return super().apply_gradients(apply_grads_closure, steps, *[gradient for gradient, _ in pairs])


class LocalGradientAggregationHelper(ScaledAggregation):
    """Adds gradients up in variables, and reduces them at every n-th call; in graphs and outside.

    Where nothing is reduced, compute_gradients() gives zeros, and apply_gradients() applies nothing.

    Args:
        backward_passes_per_step: n.
        allreduce_func: reduces a list of gradients; called with these and their variables.
        sparse_as_dense: IndexedSlices become dense; else they are an error.
        average_aggregated_gradients: the sums are divided by n.
        rank, optimizer_type, name: are there for Horovod's programs, and change nothing.
        process_set: of whose size gradients of local variables are divided, with scale_local_gradients.
    """

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., List[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: Any = None,
        optimizer_type: Optional[str] = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        super().__init__(backward_passes_per_step, allreduce_func, sparse_as_dense, average_aggregated_gradients)
        self.rank, self.optimizer_type, self.process_set, self.name = rank, optimizer_type, process_set, name
        self.scale_local_gradients = scale_local_gradients

    def compute_gradients(self, grads: List[Any], vars: List[Any]) -> List[Any]:
        """The reduced sums at every n-th call, zeros otherwise."""
        is_scaled = self.scale_local_gradients and self._local and self.process_set.takes_part()
        self._divided_by = self.process_set if is_scaled else None
        return super().compute_gradients(grads, vars)
