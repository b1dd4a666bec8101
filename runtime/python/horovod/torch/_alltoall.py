"""alltoall: each rank sends some of its rows to each rank."""

from typing import List, Optional, Sequence, Tuple, Union

import torch

from horovod.common import _lib
from horovod.common.process_sets import ProcessSet, global_process_set, number_of
from horovod.torch._handles import execute, result_tensor, start
from horovod.torch._tensors import MOVED, dtype_of, full_name, needs_gradient, shape_in_rows, within_reach

Splits = Union[torch.Tensor, Sequence[int], None]


def _rows_of(splits: Splits) -> List[int]:
    if splits is None:
        return []
    if isinstance(splits, torch.Tensor):
        if splits.dtype != torch.int32:
            raise ValueError(f"splits must be a tensor of torch.int32, not {splits.dtype}")
        if splits.dim() != 1:
            raise ValueError(f"splits must have one dimension, not {splits.dim()}")
        splits = splits.tolist()
    rows = [int(rows) for rows in splits]
    if not rows:
        raise ValueError("splits is empty; it needs an entry for each rank")
    if any(abs(count) > 0x7FFFFFFF for count in rows):
        raise ValueError("splits must fit 32 bits")
    return rows


def _arguments(tensor, splits, name, process_set, finish):
    """Returns the arguments of `start` and `execute`."""
    rows = _rows_of(splits)
    dtype = dtype_of(tensor, MOVED)
    return (
        within_reach(tensor), finish,
        _lib.ALLTOALL, dtype, shape_in_rows(tensor), full_name("alltoall.", name), _lib.SUM, 0, 1.0, 1.0,
        number_of(process_set), tuple(rows),
    )  # fmt: skip


def _execute(tensor, splits, name, process_set):
    return execute(*_arguments(tensor, splits, name, process_set, lambda done: _received(done, tensor, splits)))


def _received(done: int, tensor: torch.Tensor, splits: Splits) -> Tuple[torch.Tensor, torch.Tensor]:
    result = _lib.result(done)
    received = torch.tensor(result.received_splits[: result.received_count], dtype=torch.int32, device="cpu")
    device = splits.device if isinstance(splits, torch.Tensor) else "cpu"
    return result_tensor(done, tensor), received.to(device)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `alltoall`; returns a handle whose `synchronize` gives the rows and how many came from each rank: both, also
    without `splits`, as Horovod's does."""
    return start(*_arguments(tensor, splits, name, process_set, lambda done: _received(done, tensor, splits)))


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        output, received = _execute(tensor, splits, name, process_set)
        ctx.process_set = process_set
        ctx.received = received.cpu()
        ctx.rows = tensor.shape[0]
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx, gradient, _):
        back, _ = alltoall(gradient, splits=ctx.received, process_set=ctx.process_set)
        if back.shape[0] < ctx.rows:  # rows that were sent to nobody
            back = torch.cat([back, back.new_zeros(ctx.rows - back.shape[0], *back.shape[1:])])
        return back, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """Returns the rows that all ranks have for this one, in the order of the ranks, as a new tensor.

    Args:
        tensor: of at least one dimension, any type; dimension 0 may differ between ranks, the others must agree.
        splits: int32, how many rows go to each rank, the first ones to rank 0; together at most as many as there are.
            Without it every rank gets an even share, and ValueError if there is none.
        name: the same on every rank.

    Returns:
        The rows; with `splits` given also an int32 tensor of how many rows came from each rank.

    The gradient is the alltoall back.
    """
    run = _Alltoall.apply if needs_gradient(tensor) else _execute
    output, received = run(tensor, splits, name, process_set)
    return output if splits is None else (output, received)
