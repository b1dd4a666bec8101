"""allreduce: the element-wise reduction of all ranks' tensors."""

from typing import Any, List, Optional, Sequence

import torch

from horovod.common import _lib
from horovod.common.process_sets import ProcessSet, global_process_set, number_of
from horovod.common.util import choose_op
from horovod.torch._handles import (
    Target,
    execute_into,
    plan_on,
    run_into,
    start_group,
    start_host_group,
    synchronize,
)
from horovod.torch._host_groups import execute_host_group
from horovod.torch._plans import execute_again
from horovod.torch._tensors import check_group, check_in_place, dtype_of, empty_like, group_names, needs_gradient
from horovod.torch.compression import Compression


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
    op = choose_op(op, average)
    dtype_of(tensor, op)
    return run_into(
        _lib.ALLREDUCE, "allreduce.", tensor, empty_like(tensor), name, op, 0, prescale_factor, postscale_factor,
        number_of(process_set),
    )  # fmt: skip


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
    op = choose_op(op, average)
    check_in_place(tensor)
    return run_into(
        _lib.ALLREDUCE, "allreduce.", tensor, tensor, name, op, 0, prescale_factor, postscale_factor,
        number_of(process_set),
    )  # fmt: skip


def _execute(tensor, name, op, prescale_factor, postscale_factor, process_set):
    return execute_into(
        _lib.ALLREDUCE, "allreduce.", tensor, empty_like(tensor), name, op, 0, prescale_factor, postscale_factor,
        number_of(process_set),
    )  # fmt: skip


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, op, prescale_factor, postscale_factor, process_set):
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set)
        return _execute(tensor, name, op, prescale_factor, postscale_factor, process_set)

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
    """Returns the element-wise reduction of all ranks' tensors, as a new tensor of the same shape, type and device.

    Args:
        tensor: any shape, the same on every rank.
        average: deprecated: True is op=hvd.Average, False is op=hvd.Sum.
        name: the same on every rank.
        compression: `hvd.Compression.none`, `.fp16` or `.bf16`: the type in which it travels and is reduced.
        op: hvd.Average (the default), Sum, Min, Max, Product or Adasum. Integers average with truncation toward zero.
            Adasum, of floating types, adds what is orthogonal and averages what is parallel; any number of ranks.
            Complex numbers have Average and Sum.
        prescale_factor: multiplies each rank's tensor before the reduction.
        postscale_factor: multiplies the result.

    The gradient is the allreduce of the gradients with the same operator and factors.
    """
    if average is None and compression is Compression.none and process_set is global_process_set:
        result = execute_again(
            _lib.ALLREDUCE, tensor, False, name, _lib.AVERAGE if op is None else op, 0, prescale_factor, postscale_factor
        )
        if result is not None:
            return result
    op = choose_op(op, average)
    dtype_of(tensor, op)
    compressed, ctx = compression.compress(tensor)
    run = _Allreduce.apply if needs_gradient(compressed) else _execute
    reduced = run(compressed, name, op, prescale_factor, postscale_factor, process_set)
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
    """Works as `allreduce`, in place; returns the tensor."""
    if average is None and process_set is global_process_set:
        result = execute_again(
            _lib.ALLREDUCE, tensor, True, name, _lib.AVERAGE if op is None else op, 0, prescale_factor, postscale_factor
        )
        if result is not None:
            return result
    op = choose_op(op, average)
    check_in_place(tensor)
    return execute_into(
        _lib.ALLREDUCE, "allreduce.", tensor, tensor, name, op, 0, prescale_factor, postscale_factor,
        number_of(process_set),
    )  # fmt: skip


# ---- groups ----

_GROUP = "grouped_allreduce."  # how their names begin


def _start_host_group(tensors, is_in_place, name, op, prescale_factor, postscale_factor, process_set) -> Optional[int]:
    return start_host_group(
        tensors, is_in_place,
        _lib.ALLREDUCE, _GROUP, name, op, prescale_factor, postscale_factor, number_of(process_set),
    )  # fmt: skip


def _execute_host_group(tensors, is_in_place, name, op, prescale_factor, postscale_factor, process_set) -> Optional[List]:
    return execute_host_group(
        tensors, is_in_place,
        _lib.ALLREDUCE, _GROUP, name, op, prescale_factor, postscale_factor, number_of(process_set),
    )  # fmt: skip


def _start_group(tensors, is_in_place, name, op, prescale_factor, postscale_factor, process_set) -> int:
    """Goes the long way."""
    tensors = check_group(tensors, op)
    if is_in_place:
        for tensor in tensors:
            check_in_place(tensor)
    number = number_of(process_set)
    targets = [Target(tensor, tensor if is_in_place else empty_like(tensor), op) for tensor in tensors]
    names = group_names(_GROUP, name, len(targets))
    plans = [
        plan_on(
            target.source, target.memory,
            _lib.ALLREDUCE, target.dtype, target.shape, full_name, op, 0, prescale_factor, postscale_factor, number,
        )
        for target, full_name in zip(targets, names)
    ]  # fmt: skip
    return start_group(targets, [target.finish for target in targets], plans)


def _execute_group(*arguments) -> List[torch.Tensor]:
    results = _execute_host_group(*arguments)
    return synchronize(_start_group(*arguments)) if results is None else results


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce`; returns one handle, whose `synchronize` gives the list of new tensors."""
    arguments = (tensors, False, name, choose_op(op, average), prescale_factor, postscale_factor, process_set)
    handle = _start_host_group(*arguments)
    return _start_group(*arguments) if handle is None else handle


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce_`; returns one handle."""
    arguments = (tensors, True, name, choose_op(op, average), prescale_factor, postscale_factor, process_set)
    handle = _start_host_group(*arguments)
    return _start_group(*arguments) if handle is None else handle


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, prescale_factor, postscale_factor, process_set, *tensors):
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set)
        handle = grouped_allreduce_async(tensors, None, name, op, prescale_factor, postscale_factor, process_set)
        return tuple(synchronize(handle))

    @staticmethod
    def backward(ctx, *gradients):
        op, prescale_factor, postscale_factor, process_set = ctx.arguments
        reduced = grouped_allreduce(
            gradients,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )
        return (None, None, None, None, None, *reduced)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[torch.Tensor]:
    """Reduces each tensor of a list as `allreduce` does, all together or none. Returns the list of new tensors.

    None is reduced before every rank has asked for all of them, and an error is one of all. The list must be the same
    on every rank, in the same order.
    """
    op = choose_op(op, average)
    if compression is Compression.none:  # then nothing has to be looked at tensor by tensor
        results = _execute_host_group(tensors, False, name, op, prescale_factor, postscale_factor, process_set)
        if results is not None:
            return results
    pairs = [compression.compress(tensor) for tensor in check_group(tensors, op)]
    compressed = [tensor for tensor, _ in pairs]
    if any(map(needs_gradient, compressed)):
        reduced = _GroupedAllreduce.apply(name, op, prescale_factor, postscale_factor, process_set, *compressed)
    elif compression is Compression.none:
        reduced = synchronize(
            _start_group(compressed, False, name, op, prescale_factor, postscale_factor, process_set)
        )
    else:
        reduced = _execute_group(compressed, False, name, op, prescale_factor, postscale_factor, process_set)
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(reduced, pairs)]


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[torch.Tensor]:
    """Works as `grouped_allreduce`, in place; returns the list of tensors."""
    return _execute_group(
        tensors, True, name, choose_op(op, average), prescale_factor, postscale_factor, process_set
    )
