"""reducescatter: the reduction of all ranks' tensors, of which each rank gets its rows."""

from typing import Any, List, Optional, Sequence

import torch

from horovod.common import _lib
from horovod.common.process_sets import ProcessSet, global_process_set, number_of
from horovod.common.util import choose_op
from horovod.torch._allgather import allgather, grouped_allgather
from horovod.torch._handles import execute, result_tensor, start, start_rows_group, synchronize
from horovod.torch._tensors import check_group, dtype_of, full_name, needs_gradient, shape_in_rows, within_reach
from horovod.torch.compression import Compression


def _check_op(op: Optional[int]) -> int:
    """Refuses other operators, as Horovod does: a gradient exists for these two only, and scripts expect a
    RuntimeError."""
    op = choose_op(op, None)
    if op not in (_lib.AVERAGE, _lib.SUM):
        raise NotImplementedError("reducescatter supports op=hvd.Average and hvd.Sum")
    return op


def _arguments(tensor, name, op, process_set, prescale_factor, postscale_factor):
    """Returns the arguments of `start` and `execute`."""
    dtype = dtype_of(tensor)
    return (
        within_reach(tensor), lambda done: result_tensor(done, tensor),
        _lib.REDUCESCATTER, dtype, shape_in_rows(tensor), full_name("reducescatter.", name), op, 0, float(prescale_factor),
        float(postscale_factor),
        number_of(process_set),
    )  # fmt: skip


def _execute(*arguments):
    return execute(*_arguments(*arguments))


def reducescatter_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    op: int = _lib.AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts `reducescatter`; returns a handle whose `synchronize` gives the new tensor."""
    return start(*_arguments(tensor, name, _check_op(op), process_set, prescale_factor, postscale_factor))


def _scaled_for_gather(gradient, op, prescale_factor, postscale_factor, process_set):
    """Follows Horovod's rule: the gradient of a sum counts once for each rank, and the factors once each."""
    factor = prescale_factor * postscale_factor * (process_set.size() if op == _lib.SUM else 1)
    return gradient if factor == 1.0 else gradient * factor


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, op, process_set, prescale_factor, postscale_factor):
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set)
        return _execute(tensor, name, op, process_set, prescale_factor, postscale_factor)

    @staticmethod
    def backward(ctx, gradient):
        gathered = allgather(_scaled_for_gather(gradient, *ctx.arguments), process_set=ctx.arguments[-1])
        return gathered, None, None, None, None, None


def reducescatter(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: int = _lib.AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Returns this rank's rows of the element-wise reduction of all ranks' tensors, as a new tensor.

    Dimension 0 is divided by the number of ranks; what remains makes the lowest ranks' parts one row longer.

    Args:
        tensor: of at least one dimension, the same shape on every rank.
        name: the same on every rank.
        compression: `hvd.Compression.none`, `.fp16` or `.bf16`: the type in which it travels and is reduced.
        op: hvd.Average (the default) or hvd.Sum.
        prescale_factor: multiplies each rank's tensor before the reduction.
        postscale_factor: multiplies the result.

    The gradient is the allgather of the gradients, times the factors, and with hvd.Sum times the number of ranks.
    """
    op = _check_op(op)
    dtype_of(tensor)
    compressed, ctx = compression.compress(tensor)
    run = _Reducescatter.apply if needs_gradient(compressed) else _execute
    reduced = run(compressed, name, op, process_set, prescale_factor, postscale_factor)
    return compression.decompress(reduced, ctx)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    op: int = _lib.AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts `grouped_reducescatter`; returns one handle, whose `synchronize` gives the list of new tensors."""
    op = _check_op(op)
    return start_rows_group(
        _lib.REDUCESCATTER, "grouped_reducescatter.", check_group(tensors), name, number_of(process_set), op,
        float(prescale_factor), float(postscale_factor),
    )  # fmt: skip


class _GroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, process_set, prescale_factor, postscale_factor, *tensors):
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set)
        handle = grouped_reducescatter_async(tensors, name, op, process_set, prescale_factor, postscale_factor)
        return tuple(synchronize(handle))

    @staticmethod
    def backward(ctx, *gradients):
        scaled = [_scaled_for_gather(gradient, *ctx.arguments) for gradient in gradients]
        return (None, None, None, None, None, *grouped_allgather(scaled, process_set=ctx.arguments[-1]))


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: int = _lib.AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[torch.Tensor]:
    """Works as `reducescatter` on each tensor of a list, all together or none. Returns the list of new tensors."""
    op = _check_op(op)
    pairs = [compression.compress(tensor) for tensor in check_group(tensors)]
    compressed = [tensor for tensor, _ in pairs]
    if any(map(needs_gradient, compressed)):
        reduced = _GroupedReducescatter.apply(name, op, process_set, prescale_factor, postscale_factor, *compressed)
    else:
        reduced = synchronize(
            grouped_reducescatter_async(compressed, name, op, process_set, prescale_factor, postscale_factor)
        )
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(reduced, pairs)]
