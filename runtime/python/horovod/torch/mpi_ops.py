"""Collective operations on torch tensors.

Valid for every operation here:

* Every rank must call it, with the same name where one is given, and unnamed operations in the same order.
* Types: uint8, int8, uint16, int16, int32, int64, float16, bfloat16, float32, float64, bool. Tensors on a
  GPU are worked on where they are, in the order of the current stream, where the library can (hvd.cuda_built); else,
  and on other devices, they travel through host memory.
* HorovodInternalError is raised on every rank when ranks disagree (shape, type, operator, root) and when a rank or link
  is gone; ValueError is raised on the rank whose own argument is wrong, and nothing is sent then.
* An `_async` form returns an int handle at once, for `synchronize` and `poll`; until then its tensors must not be
  changed. A name that is in flight on this rank may not be used again (ValueError).
* A form that ends in `_` works in place and wants a contiguous tensor (ValueError); the others copy where needed.
* A `grouped_` form takes a list of tensors, the same on every rank, which travel together: none is done before all
  ranks have asked for all, and an error is one of all.
* The forms that are neither asynchronous nor in place can be differentiated.
"""

from typing import Optional

import torch

from horovod.common import basics as _basics  # noqa: F401  (Horovod's name for what knows the job)
from horovod.common._exports import *  # noqa: F401, F403  (scripts import them from here)
from horovod.common.util import check_num_rank_power_of_2, choose_op, num_rank_is_power_2  # noqa: F401
from horovod.torch._allgather import (  # noqa: F401
    allgather,
    allgather_async,
    grouped_allgather,
    grouped_allgather_async,
)
from horovod.torch._allreduce import (  # noqa: F401
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)
from horovod.torch._alltoall import alltoall, alltoall_async  # noqa: F401
from horovod.torch._barrier import barrier, join  # noqa: F401
from horovod.torch._broadcast import broadcast, broadcast_, broadcast_async, broadcast_async_  # noqa: F401
from horovod.torch._handles import poll, synchronize  # noqa: F401
from horovod.torch._reducescatter import (  # noqa: F401
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from horovod.torch._sparse import sparse_allreduce_async  # noqa: F401


def handle_average_backwards_compatibility(op: Optional[int], average: Optional[bool]) -> int:
    """Returns the operator that a call means by `op` and the deprecated `average`."""
    return choose_op(op, average)


def gpu_available(ext_base_name: str = "torch", verbose: bool = False) -> bool:
    """Returns whether PyTorch sees a GPU here."""
    return torch.cuda.is_available()
