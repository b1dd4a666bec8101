"""allreduce: the element-wise reduction of all ranks' tensors."""

from typing import Any, Optional

import torch

from horovod.common import _lib
from horovod.common.process_sets import ProcessSet, check_supported, global_process_set
from horovod.common.util import choose_op
from horovod.torch._handles import check_in_place, dtype_of, empty_like, run_into, synchronize
from horovod.torch.compression import Compression


def allreduce_into(tensor, output, name, op, prescale_factor, postscale_factor) -> int:
    """allreduce_async_ without the check of contiguity; for gradients, whose layout is torch's choice."""
    return run_into(
        _lib.ALLREDUCE, "allreduce.", tensor, output, name,
        reduce_op=op, prescale=prescale_factor, postscale=postscale_factor,
    )  # fmt: skip


def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce`; returns a handle whose `synchronize` gives the new tensor."""
    check_supported(process_set)
    op = choose_op(op, average)
    dtype_of(tensor)
    return allreduce_into(tensor, empty_like(tensor), name, op, prescale_factor, postscale_factor)


def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce_`; returns a handle."""
    check_supported(process_set)
    op = choose_op(op, average)
    check_in_place(tensor)
    return allreduce_into(tensor, tensor, name, op, prescale_factor, postscale_factor)


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, op, prescale_factor, postscale_factor, process_set):
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set)
        return synchronize(allreduce_async(tensor, None, name, op, prescale_factor, postscale_factor, process_set))

    @staticmethod
    def backward(ctx, gradient):
        op, prescale_factor, postscale_factor, process_set = ctx.arguments
        reduced = allreduce(
            gradient,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )
        return reduced, None, None, None, None, None


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The element-wise reduction of all ranks' tensors, as a new tensor of the same shape, type and device.

    Args:
        tensor: any shape, the same on every rank.
        average: deprecated: True is op=hvd.Average, False is op=hvd.Sum.
        name: the same on every rank.
        compression: `hvd.Compression.none` or `.fp16`: the type in which it travels and is reduced.
        op: hvd.Average (the default), Sum, Min, Max or Product. Integers average with truncation toward zero.
        prescale_factor: multiplies each rank's tensor before the reduction.
        postscale_factor: multiplies the result.

    The gradient is the allreduce of the gradients with the same operator and factors.
    """
    check_supported(process_set)
    op = choose_op(op, average)
    dtype_of(tensor)
    compressed, ctx = compression.compress(tensor)
    reduced = _Allreduce.apply(compressed, name, op, prescale_factor, postscale_factor, process_set)
    return compression.decompress(reduced, ctx)


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """`allreduce` in place; returns the tensor."""
    return synchronize(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set))
