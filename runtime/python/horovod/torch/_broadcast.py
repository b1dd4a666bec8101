"""broadcast: one rank's tensor on every rank."""

from typing import Optional

import torch

from horovod.common import _lib, basics
from horovod.common.process_sets import ProcessSet, global_process_set, number_of
from horovod.torch._allreduce import allreduce
from horovod.torch._handles import execute_into, run_into
from horovod.torch._plans import execute_again
from horovod.torch._tensors import MOVED, check_in_place, dtype_of, empty_like, needs_gradient


def broadcast_into(tensor, output, root_rank, name, process_set=global_process_set) -> int:
    """Works as broadcast_async_, without the check of contiguity."""
    return run_into(_lib.BROADCAST, "broadcast.", tensor, output, name, _lib.SUM, root_rank,
                    1.0, 1.0, number_of(process_set))  # fmt: skip


def _execute_into(tensor, output, root_rank, name, process_set):
    return execute_into(_lib.BROADCAST, "broadcast.", tensor, output, name, _lib.SUM, root_rank,
                        1.0, 1.0, number_of(process_set))  # fmt: skip


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `broadcast`; returns a handle whose `synchronize` gives the new tensor."""
    dtype_of(tensor, MOVED)
    return broadcast_into(tensor, empty_like(tensor), root_rank, name, process_set)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `broadcast_`; returns a handle."""
    check_in_place(tensor)
    return broadcast_into(tensor, tensor, root_rank, name, process_set)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        return _execute_into(tensor, empty_like(tensor), root_rank, name, process_set)

    @staticmethod
    def backward(ctx, gradient):
        reduced = allreduce(gradient, op=_lib.AVERAGE, process_set=ctx.process_set)
        if basics.rank() != ctx.root_rank:
            reduced = torch.zeros_like(reduced)
        return reduced, None, None, None


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Returns the root's tensor, as a new tensor on every rank.

    Args:
        tensor: any shape and type, the same on every rank; its values matter on the root only.
        root_rank: 0 ... size() - 1, the same on every rank; one of the whole job's numbers, also with a process set.

    The gradient is the averaged gradients on the root, zeros elsewhere.
    """
    if process_set is global_process_set:
        result = execute_again(_lib.BROADCAST, tensor, False, name, _lib.SUM, root_rank, 1.0, 1.0)
        if result is not None:
            return result
    if needs_gradient(tensor):
        return _Broadcast.apply(tensor, root_rank, name, process_set)
    dtype_of(tensor, MOVED)
    return _execute_into(tensor, empty_like(tensor), root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Works as `broadcast`, in place; returns the tensor."""
    if process_set is global_process_set:
        result = execute_again(_lib.BROADCAST, tensor, True, name, _lib.SUM, root_rank, 1.0, 1.0)
        if result is not None:
            return result
    check_in_place(tensor)
    return _execute_into(tensor, tensor, root_rank, name, process_set)
