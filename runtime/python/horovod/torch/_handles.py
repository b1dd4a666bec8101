"""Operations in flight: tensors in, a handle out, and later the tensors again.

What all operations share: which types travel, memory that the library can read and write, and the table of handles.
"""

import itertools
import warnings
from typing import Any, Callable, Dict, Optional, Tuple

import torch

from horovod.common import _lib, _wait, basics
from horovod.common.exceptions import HorovodInternalError

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


def dtype_of(tensor: torch.Tensor) -> int:
    """The library's number of the tensor's type. ValueError for what does not travel."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"a torch tensor is needed, not {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise ValueError(f"Tensors of layout {tensor.layout} are not supported yet; use tensor.to_dense().")
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise ValueError(f"Tensor type {tensor.dtype} is not supported.")
    return dtype


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The values in contiguous host memory: the tensor itself where it is there already."""
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        global _told_about_staging
        if not _told_about_staging:
            _told_about_staging = True
            warnings.warn(f"tensors on {tensor.device.type} travel through host memory in this version", stacklevel=4)
        tensor = tensor.cpu()
    return tensor.contiguous()


def empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """New memory of the same shape, contiguous whatever the tensor's own layout is."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def start(keep: Tuple, finish: Callable[[int], Any], *op, **more) -> int:
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


def run_into(kind: int, prefix: str, tensor: torch.Tensor, output: torch.Tensor, name: Optional[str], **more) -> int:
    """Starts an allreduce or broadcast of `tensor` whose result goes into `output`, which may be the same tensor."""
    dtype = dtype_of(tensor)
    source = on_host(tensor)
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
    return start(
        (source, target), finish, kind, dtype, tensor.shape, source.data_ptr(), target.data_ptr(), full_name, **more
    )


def check_in_place(tensor: torch.Tensor) -> None:
    """ValueError unless an operation can work in the tensor's own memory."""
    if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")


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
