"""Sparse tensors: indices and values of all ranks, one after the other."""

from typing import Any, Callable

import torch

from horovod.common import _lib
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._allgather import allgather_async
from horovod.torch._handles import synchronize
from horovod.torch.compression import Compression


def zeros_like(p: torch.Tensor) -> torch.Tensor:
    """Returns a sparse tensor of p's shape and type without values, sparse in dimension 0 as an embedding's gradient
    is."""
    indices = torch.empty(1, 0, dtype=torch.int64, device=p.device)
    values = torch.empty(0, *p.shape[1:], dtype=p.dtype, device=p.device)
    return torch.sparse_coo_tensor(indices, values, p.shape, device=p.device, check_invariants=False)


def start(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet, compression: Any
) -> Callable[[], torch.Tensor]:
    """Works as sparse_allreduce_async, on a checked tensor with compressed values."""
    if op not in (_lib.AVERAGE, _lib.SUM):
        raise ValueError("sparse tensors are reduced by op=hvd.Average or hvd.Sum")
    tensor = tensor.coalesce() if not tensor.is_coalesced() else tensor
    # The indices are transposed to one row for each value, because ranks differ in the number of values, dimension 1.
    indices = allgather_async(tensor._indices().t().contiguous(), name + ".indices", process_set)
    values, ctx = compression.compress(tensor._values())
    try:
        gathered = allgather_async(values, name + ".values", process_set)
    except Exception:
        synchronize(indices)
        raise

    def result() -> torch.Tensor:
        try:
            all_indices = synchronize(indices).t()
        finally:
            all_values = synchronize(gathered)
        all_values = compression.decompress(all_values, ctx)
        if op == _lib.AVERAGE:
            all_values = all_values / process_set.size()
        return torch.sparse_coo_tensor(
            all_indices, all_values, tensor.shape, device=all_values.device, check_invariants=False
        )

    return result


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Starts the sum or average of the ranks' sparse (COO) tensors of one shape.

    What travels are the indices and values that are there, so that its cost grows with the number of ranks; a tensor of
    which most rows are set is better off as `tensor.to_dense()`.

    Args:
        tensor: sparse COO, of the same shape, sparse dimensions and type on every rank; the number of values may differ.
        name: the same on every rank.
        op: hvd.Average or hvd.Sum.

    Returns:
        A function that waits and gives the new sparse tensor, which is not coalesced: an index that several ranks have is
        there as often.

    Raises:
        ValueError: the tensor is not sparse, or `op` is another.
        HorovodInternalError: from the function that is returned; on every rank.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        raise ValueError("sparse_allreduce_async needs a tensor of layout torch.sparse_coo")
    return start(tensor, name, op, process_set, Compression.none)
