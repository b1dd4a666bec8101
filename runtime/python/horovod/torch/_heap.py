"""Memory for gradients that are made again in each step.

`zero_grad(set_to_none=True)`, torch's default, frees all gradients, and the next backward allocates them again. glibc's
malloc gives such memory back to the kernel when it is freed, and gets it page by page, zeroed, when it is written: for
ResNet-50's 102 MB that is 24,500 page faults a step, which took as long as the reduction. So it is told to keep it.

What a process has freed is then its own still, and what it allocates next is made of that; single pieces of more than
32 MiB are given back as before. Who has set malloc's thresholds himself is left his.
"""

import ctypes
import os
from typing import Iterable

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_NEVER = -1  # becomes the largest size_t
# Up to here malloc raises its threshold by itself, until someone sets one of them; older glibc refuses more
# (DEFAULT_MMAP_THRESHOLD_MAX). Larger pieces among the others would leave gaps too large to waste.
_LARGEST_BYTES = 32 << 20
# The least size that is worth it: below it, a step has only hundreds of page faults.
_WORTH_BYTES = 1 << 20


MALLOC_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")


def is_set_by_user() -> bool:
    """Returns whether the user has set malloc's thresholds, which then stay."""
    return any(name in os.environ for name in MALLOC_VARIABLES) or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "")


_is_told = False


def keep_for(parameters: Iterable[torch.Tensor]) -> None:
    """Makes glibc's malloc keep the memory of these parameters' gradients from step to step. Does nothing with other
    mallocs."""
    global _is_told
    if _is_told or sum(p.numel() * p.element_size() for p in parameters if p.is_cpu) < _WORTH_BYTES or is_set_by_user():
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_BYTES)
        _is_told = True
