"""allgather: the ranks' tensors one after the other."""

import ctypes
from typing import Optional

import torch

from horovod.common import _lib
from horovod.common.process_sets import ProcessSet, check_supported, global_process_set
from horovod.torch._allreduce import allreduce
from horovod.torch._handles import dtype_of, on_host, start, synchronize


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `allgather`; returns a handle whose `synchronize` gives the new tensor."""
    check_supported(process_set)
    dtype = dtype_of(tensor)
    source = on_host(tensor)
    device = tensor.device

    def finish(done: int) -> torch.Tensor:
        result = _lib.result(done)
        gathered = torch.empty(result.shape[: result.ndim], dtype=source.dtype)
        if result.size_bytes:
            ctypes.memmove(gathered.data_ptr(), result.data, result.size_bytes)
        return gathered.to(device)

    full_name = None if name is None else "allgather." + name
    return start((source,), finish, _lib.ALLGATHER, dtype, tensor.shape, source.data_ptr(), None, full_name)


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):
        ctx.rows = tensor.shape[0] if tensor.dim() else 0
        ctx.process_set = process_set
        return synchronize(allgather_async(tensor, name, process_set))

    @staticmethod
    def backward(ctx, gradient):
        reduced = allreduce(gradient, op=_lib.AVERAGE, process_set=ctx.process_set)
        rows = allgather(torch.tensor([ctx.rows]), process_set=ctx.process_set).tolist()
        own = ctx.process_set.rank()
        return reduced.narrow(0, sum(rows[:own]), rows[own]), None, None


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """The ranks' tensors one after the other along dimension 0, in rank order, as a new tensor.

    Dimension 0 may differ between ranks and be 0; the others must agree. At least one dimension is needed. The gradient
    is this rank's rows of the averaged gradients.
    """
    check_supported(process_set)
    return _Allgather.apply(tensor, name, process_set)
