"""Collective operations on torch tensors.

Valid for every operation here:

* Every rank must call it, with the same name where one is given, and unnamed operations in the same order.
* Types: uint8, int8, uint16, int16, int32, int64, float16, bfloat16, float32, float64, bool. Tensors on a device travel
  through host memory.
* HorovodInternalError is raised on every rank when ranks disagree (shape, type, operator, root) and when a rank or link
  is gone; ValueError is raised on the rank whose own argument is wrong, and nothing is sent then.
* An `_async` form returns an int handle at once, for `synchronize` and `poll`; until then its tensors must not be
  changed. A name that is in flight on this rank may not be used again (ValueError).
* A form that ends in `_` works in place and wants a contiguous tensor (ValueError); the others copy where needed.
* The forms that are neither asynchronous nor in place can be differentiated.
"""

import ctypes
import itertools
import warnings
from typing import Any, Callable, Dict, Optional, Tuple

import torch

from horovod.common import _lib, _wait, basics
from horovod.common.basics import (  # noqa: F401  (scripts import them from here)
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
)
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, check_supported, global_process_set
from horovod.common.util import choose_op
from horovod.torch.compression import Compression

Average = _lib.AVERAGE
Sum = _lib.SUM
Adasum = _lib.ADASUM
Min = _lib.MIN
Max = _lib.MAX
Product = _lib.PRODUCT

_DTYPES = {
    torch.uint8: _lib.UINT8,
    torch.int8: _lib.INT8,
    torch.int16: _lib.INT16,
    torch.int32: _lib.INT32,
    torch.int64: _lib.INT64,
    torch.float16: _lib.FLOAT16,
    torch.bfloat16: _lib.BFLOAT16,
    torch.float32: _lib.FLOAT32,
    torch.float64: _lib.FLOAT64,
    torch.bool: _lib.BOOL,
}
if hasattr(torch, "uint16"):  # since torch 2.3
    _DTYPES[torch.uint16] = _lib.UINT16


class _Pending:
    """One operation in flight: keeps its memory alive, and knows what to do when it has ended."""

    __slots__ = ("library_handle", "generation", "keep", "finish")

    def __init__(self, keep: Tuple, finish: Callable[[int], Any]) -> None:
        self.library_handle = 0
        self.generation = basics.generation
        self.keep = keep
        self.finish = finish


# Our own numbers, not the library's: those may come again after shutdown and init.
_pending: Dict[int, _Pending] = {}
_handles = itertools.count(1)
_told_about_staging = False


def _dtype(tensor: torch.Tensor) -> int:
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"a torch tensor is needed, not {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise ValueError(f"Tensors of layout {tensor.layout} are not supported yet; use tensor.to_dense().")
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise ValueError(f"Tensor type {tensor.dtype} is not supported.")
    return dtype


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The values in contiguous host memory: the tensor itself where it is there already."""
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        global _told_about_staging
        if not _told_about_staging:
            _told_about_staging = True
            warnings.warn(f"tensors on {tensor.device.type} travel through host memory in this version", stacklevel=4)
        tensor = tensor.cpu()
    return tensor.contiguous()


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _start(keep: Tuple, finish: Callable[[int], Any], *op, **more) -> int:
    """Starts an operation (the arguments of _lib.enqueue) and returns our handle for it."""
    handle = next(_handles)
    # In the table before the library has the memory: a KeyboardInterrupt in between must not free it.
    pending = _pending[handle] = _Pending(keep, finish)
    try:
        pending.library_handle = _lib.enqueue(*op, **more)
    except Exception:
        del _pending[handle]
        raise
    return handle


def _run_into(kind: int, prefix: str, tensor: torch.Tensor, output: torch.Tensor, name: Optional[str], **more) -> int:
    """Starts an allreduce or broadcast of `tensor` whose result goes into `output`, which may be the same tensor."""
    dtype = _dtype(tensor)
    source = _on_host(tensor)
    # What the library writes: the output's own memory where it can, else the contiguous host copy of an in-place
    # operation, else memory of its own.
    if output.device.type == "cpu" and output.is_contiguous():
        target = output
    elif output is tensor:
        target = source
    else:
        target = torch.empty(output.shape, dtype=output.dtype)

    def finish(_: int) -> torch.Tensor:
        if target is not output:
            with torch.no_grad():
                output.copy_(target)
        return output

    full_name = None if name is None else prefix + name
    return _start(
        (source, target), finish, kind, dtype, tensor.shape, source.data_ptr(), target.data_ptr(), full_name, **more
    )


def _check_in_place(tensor: torch.Tensor) -> None:
    if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")


def _allreduce_into(tensor, output, name, op, prescale_factor, postscale_factor) -> int:
    """allreduce_async_ without the check of contiguity; for gradients, whose layout is torch's choice."""
    return _run_into(
        _lib.ALLREDUCE, "allreduce.", tensor, output, name,
        reduce_op=op, prescale=prescale_factor, postscale=postscale_factor,
    )  # fmt: skip


def _broadcast_into(tensor, output, root_rank, name) -> int:
    """broadcast_async_ without the check of contiguity."""
    return _run_into(_lib.BROADCAST, "broadcast.", tensor, output, name, root_rank=root_rank)


# ---- allreduce ----


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
    _dtype(tensor)
    return _allreduce_into(tensor, _empty_like(tensor), name, op, prescale_factor, postscale_factor)


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
    _check_in_place(tensor)
    return _allreduce_into(tensor, tensor, name, op, prescale_factor, postscale_factor)


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
    _dtype(tensor)
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


# ---- allgather ----


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `allgather`; returns a handle whose `synchronize` gives the new tensor."""
    check_supported(process_set)
    dtype = _dtype(tensor)
    source = _on_host(tensor)
    device = tensor.device

    def finish(done: int) -> torch.Tensor:
        result = _lib.result(done)
        gathered = torch.empty(result.shape[: result.ndim], dtype=source.dtype)
        if result.size_bytes:
            ctypes.memmove(gathered.data_ptr(), result.data, result.size_bytes)
        return gathered.to(device)

    full_name = None if name is None else "allgather." + name
    return _start((source,), finish, _lib.ALLGATHER, dtype, tensor.shape, source.data_ptr(), None, full_name)


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):
        ctx.rows = tensor.shape[0] if tensor.dim() else 0
        ctx.process_set = process_set
        return synchronize(allgather_async(tensor, name, process_set))

    @staticmethod
    def backward(ctx, gradient):
        reduced = allreduce(gradient, op=Average, process_set=ctx.process_set)
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


# ---- broadcast ----


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `broadcast`; returns a handle whose `synchronize` gives the new tensor."""
    check_supported(process_set)
    _dtype(tensor)
    return _broadcast_into(tensor, _empty_like(tensor), root_rank, name)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `broadcast_`; returns a handle."""
    check_supported(process_set)
    _check_in_place(tensor)
    return _broadcast_into(tensor, tensor, root_rank, name)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        return synchronize(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx, gradient):
        reduced = allreduce(gradient, op=Average, process_set=ctx.process_set)
        if rank() != ctx.root_rank:
            reduced = torch.zeros_like(reduced)
        return reduced, None, None, None


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """The root's tensor, as a new tensor on every rank.

    Args:
        tensor: any shape, the same on every rank; its values matter on the root only.
        root_rank: 0 ... size() - 1, the same on every rank.

    The gradient is the averaged gradients on the root, zeros elsewhere.
    """
    check_supported(process_set)
    return _Broadcast.apply(tensor, root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """`broadcast` in place; returns the tensor."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


# ---- handles and barrier ----


def poll(handle: int) -> bool:
    """Whether `synchronize` of the handle would return at once. ValueError for an unknown handle."""
    pending = _pending.get(handle)
    if pending is None:
        raise ValueError(f"no operation has the handle {handle!r}, or synchronize has taken it")
    return pending.generation != basics.generation or _lib.is_done(pending.library_handle)


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation and returns its tensor; None for a handle that is unknown or was taken.

    Ctrl-C ends the wait: if the operation does not end by itself at once, this rank leaves the job and
    KeyboardInterrupt is raised.

    Raises:
        HorovodInternalError: the operation failed; on every rank.
        ValueError: an argument of the operation turned out to be wrong, such as a root outside the job.
    """
    pending = _pending.get(handle)
    if pending is None:
        return None
    if pending.generation != basics.generation:
        del _pending[handle]
        raise HorovodInternalError("Horovod has been shut down while the operation was pending.")
    # The entry stays until the wait has returned: it holds the memory that the library works on.
    status = _wait.wait(pending.library_handle)
    error = _lib.error_of(status) if status else None
    _pending.pop(handle, None)
    try:
        if error is not None:
            raise error
        return pending.finish(pending.library_handle)
    finally:
        _lib.release(pending.library_handle)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns once every rank has called it. HorovodInternalError if one is gone."""
    check_supported(process_set)
    synchronize(_start((), lambda _: None, _lib.BARRIER, _lib.UINT8, (), None, None, None))
