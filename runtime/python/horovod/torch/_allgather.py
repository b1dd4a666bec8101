"""allgather: the ranks' tensors one after the other."""

from typing import List, Optional, Sequence

import torch

from horovod.common import _lib
from horovod.common.process_sets import ProcessSet, global_process_set, number_of
from horovod.torch._allreduce import allreduce, grouped_allreduce
from horovod.torch._handles import execute, result_tensor, start, start_rows_group, synchronize
from horovod.torch._tensors import MOVED, check_group, dtype_of, full_name, needs_gradient, shape_in_rows, within_reach


def _arguments(tensor, name, process_set):
    """Returns the arguments of `start` and `execute`."""
    dtype = dtype_of(tensor, MOVED)
    return (
        within_reach(tensor), lambda done: result_tensor(done, tensor),
        _lib.ALLGATHER, dtype, shape_in_rows(tensor), full_name("allgather.", name), _lib.SUM, 0, 1.0, 1.0, number_of(process_set),
    )  # fmt: skip


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `allgather`; returns a handle whose `synchronize` gives the new tensor."""
    return start(*_arguments(tensor, name, process_set))


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):
        ctx.rows = tensor.shape[0] if tensor.dim() else 0
        ctx.process_set = process_set
        return execute(*_arguments(tensor, name, process_set))

    @staticmethod
    def backward(ctx, gradient):
        reduced = allreduce(gradient, op=_lib.AVERAGE, process_set=ctx.process_set)
        rows = allgather(torch.tensor([ctx.rows], device="cpu"), process_set=ctx.process_set).tolist()
        own = ctx.process_set.rank()
        return reduced.narrow(0, sum(rows[:own]), rows[own]), None, None


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Returns the ranks' tensors one after the other along dimension 0, in rank order, as a new tensor.

    Dimension 0 may differ between ranks and be 0; the others must agree. At least one dimension is needed. The gradient
    is this rank's rows of the averaged gradients.
    """
    if needs_gradient(tensor):
        return _Allgather.apply(tensor, name, process_set)
    return execute(*_arguments(tensor, name, process_set))


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `grouped_allgather`; returns one handle, whose `synchronize` gives the list of new tensors."""
    return start_rows_group(_lib.ALLGATHER, "grouped_allgather.", check_group(tensors, MOVED), name, number_of(process_set))


class _GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        ctx.rows = [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]
        ctx.process_set = process_set
        return tuple(synchronize(grouped_allgather_async(tensors, name, process_set)))

    @staticmethod
    def backward(ctx, *gradients):
        reduced = grouped_allreduce(gradients, op=_lib.AVERAGE, process_set=ctx.process_set)
        rows = allgather(torch.tensor([ctx.rows], device="cpu"), process_set=ctx.process_set)
        own = ctx.process_set.rank()
        first = rows[:own].sum(0).tolist()
        parts = [gradient.narrow(0, first[i], ctx.rows[i]) for i, gradient in enumerate(reduced)]
        return (None, None, *parts)


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> List[torch.Tensor]:
    """Gathers each tensor of a list as `allgather` does, all together or none. Returns the list of new tensors."""
    tensors = check_group(tensors, MOVED)
    if any(map(needs_gradient, tensors)):
        return list(_GroupedAllgather.apply(name, process_set, *tensors))
    return synchronize(grouped_allgather_async(tensors, name, process_set))
