"""Tensors in memory that the library hands out. An allreduce of them copies nothing within a node."""

import ctypes
from typing import List, Sequence

import torch

from horovod.common import _lib, _wait, basics
from horovod.torch._tensors import dtype_of

_ALIGNMENT = 64  # of each tensor: a cache line, so that no two share one


class SharedBuffer:
    """SharedBuffer holds tensors that are reduced again and again, as gradients are, in memory that all ranks of a host
    see.

    An allreduce of all ranks in place (`allreduce_`, `grouped_allreduce_`, what DistributedOptimizer does) of such a
    tensor packs nothing and copies nothing within a host: each rank writes its part of the result to where the others
    have theirs. With several hosts, in a process set, or out of place they are tensors like any others, as they are
    after hvd.shutdown().

        buffer = hvd.SharedBuffer(list(model.parameters()))
        for p, gradient in zip(model.parameters(), buffer.tensors):
            p.grad = gradient
        ...
        optimizer.zero_grad(set_to_none=False)  # else the next backward makes gradients elsewhere

    Every rank of the job makes it at the same place of its calls, of the same shapes and types; blocks until all have.

    Args:
        like: tensors whose shapes and types those of the buffer get; on whatever device, they are on the host.

    Raises:
        ValueError: not initialised, or a type that does not travel.
        HorovodInternalError: ranks want different sizes, there is not so much memory, or the job is over.
    """

    def __init__(self, like: Sequence[torch.Tensor]) -> None:
        like = list(like)
        places, size_bytes = [], 0
        for tensor in like:
            dtype_of(tensor)  # ValueError for what does not travel
            places.append(size_bytes)
            size_bytes += -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT
        basics.size()  # ValueError before init
        self._generation = basics.generation
        self._address = _lib.create_buffer(max(size_bytes, 1), _wait.call)
        memory = (ctypes.c_uint8 * max(size_bytes, 1)).from_address(self._address)
        self.tensors: List[torch.Tensor] = [_at(memory, place, tensor) for place, tensor in zip(places, like)]

    def close(self) -> None:
        """Gives the memory back; on every rank of the job at the same place of its calls. `tensors` are empty then, and
        views of them must not be used any more. A buffer that is not closed keeps its memory until the process ends, as
        does one of a job that was left."""
        address, self._address = self._address, 0
        if not address or self._generation != basics.generation:
            return
        for tensor in self.tensors:
            tensor.data = torch.empty(0, dtype=tensor.dtype, device="cpu")
        self.tensors = []
        _lib.destroy_buffer(address, _wait.call)


def _at(memory: ctypes.Array, place: int, like: torch.Tensor) -> torch.Tensor:
    if like.numel() == 0:
        return torch.empty(like.shape, dtype=like.dtype, device="cpu")
    return torch.frombuffer(memory, dtype=like.dtype, count=like.numel(), offset=place).view(like.shape)
