"""Tensors on GPUs: whether the library works on them in place, on which GPU, and on which stream.

An operation begins after what the current stream had before it, and whoever has waited for it finds its result, on whatever
stream: the caller needs no synchronisation of its own. Memory is the caller's until then, as on the host, so that torch's
allocator has nothing to be told of what the library does with it: what it gives out again goes to the stream that the operation
was started on.
"""

import warnings
from typing import Callable, NamedTuple, Optional

import torch

from horovod.common import _lib, basics


class Place(NamedTuple):
    """Place is a GPU, by its number in CUDA and torch, and one of its streams."""

    device: int
    stream: int  # cudaStream_t; 0 is the default stream


# The answer whether the library takes tensors on GPUs; it is asked again each time that the process has joined a job.
_asked_at = -1
_is_taken = False
_why_not = ""
_told_about_staging = False


def _takes_gpus() -> bool:
    global _asked_at, _is_taken, _why_not
    if _asked_at != basics.generation:
        _is_taken = _lib.has_devices()
        _why_not = "" if _is_taken else _lib.last_error()
        _asked_at = basics.generation
    return _is_taken


def _current_stream_by_object(device: int) -> int:
    return torch.cuda.current_stream(device).cuda_stream


# torch's own call for compiled code: it makes no object, and takes 0.1 us where the public way takes 5.
_current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream_by_object)


def place_of(tensor: torch.Tensor) -> Optional[Place]:
    """Returns where the library works on the tensor. None means the host, where the tensor must then be."""
    if tensor.is_cpu or not tensor.is_cuda or not _takes_gpus():
        return None
    device = tensor.device.index
    return Place(device, _current_stream(device))


def follow(place: Place) -> Optional[torch.cuda.Stream]:
    """Lets the current stream wait for the place's stream, which an operation has begun behind. With
    HOROVOD_ENABLE_ASYNC_COMPLETION=1 nothing else waits for that operation's end. None: it is the same stream."""
    current = torch.cuda.current_stream(place.device)
    if current.cuda_stream == place.stream:
        return None
    if place.stream == 0:  # asked for a stream by number, torch takes 0 for none
        started_on = torch.cuda.default_stream(place.device)
    else:
        started_on = torch.cuda.ExternalStream(place.stream, place.device)
    current.wait_stream(started_on)
    return current


def tell_about_staging(tensor: torch.Tensor) -> None:
    """Tells the user, once, that this tensor and others like it are copied to the host and back."""
    global _told_about_staging
    if _told_about_staging:
        return
    _told_about_staging = True
    why = f" ({_why_not})" if tensor.is_cuda and _why_not else ""
    warnings.warn(f"tensors on {tensor.device.type} travel through host memory{why}", stacklevel=5)
