"""Plans of operations that come again, and the short way of those whose result is as large as their input.

A training loop repeats its operations, and for a small one the checks and the layers of Python take ten times as long as
the library does. So the long way (`run_into` and `execute_into` of _handles.py), which checks everything, leaves its plan
here, and the short way looks only at what may have changed since.
"""

from typing import Dict, List, Optional, Tuple

import torch

from horovod.common import _lib, _wait
from horovod.torch._device import Place
from horovod.torch._tensors import empty_like

# The plans that nobody uses at the moment, by what is the same when an operation comes again. One is taken from its list
# while it is used, so that no two threads have the same.
_free: Dict[Tuple, List[_lib.Plan]] = {}
_MAX_KEYS = 1024  # limits how many plans with names that never come again are kept


def plans_of(key: Tuple, place: Optional[Place]) -> List[_lib.Plan]:
    """Returns the plans of an operation that nobody uses; the list takes them back."""
    if place is not None:
        key = (place.device, key)
    free = _free.get(key)
    if free is None:
        if len(_free) >= _MAX_KEYS:
            _free.clear()
        free = _free.setdefault(key, [])
    return free


def take_plan(free: List[_lib.Plan]) -> Optional[_lib.Plan]:
    """Returns one of these plans, or None."""
    if not free:
        return None
    try:
        plan = free.pop()
    except IndexError:  # another thread has just taken it
        return None
    plan.placed = -1
    return plan


_Tensor = torch.Tensor


def execute_again(
    kind: int, tensor: torch.Tensor, is_in_place: bool, name: Optional[str], reduce_op: int, root_rank: int, prescale: float,
    postscale: float,
) -> Optional[torch.Tensor]:  # fmt: skip
    """Does an operation of all ranks that has come before, and returns its result: the tensor itself, or a new one. None:
    it has to go the long way, and nothing was done.

    What goes the long way: what comes for the first time, with all that is an error; subclasses of torch.Tensor; tensors on
    devices, of another layout than strided, not contiguous, negated by a view, or without memory; a new tensor that needs
    a gradient; factors that are tensors, whose values change. Callers send process sets and compression there.
    """
    try:
        free = _free.get((kind, tensor.dtype, tensor.shape, name, reduce_op, root_rank, prescale, postscale, 0))
        if (
            not free
            or tensor.__class__ is not _Tensor
            or not tensor.is_cpu
            or not tensor.is_contiguous()
            or tensor.is_neg()
        ):
            return None
        source = tensor.data_ptr()  # RuntimeError for all layouts but the strided one
        if is_in_place:
            result, target = tensor, source
        elif tensor.requires_grad:
            return None
        else:
            result = empty_like(tensor)
            target = result.data_ptr()
        plan = free.pop()
    except (AttributeError, IndexError, RuntimeError, TypeError):
        return None  # some argument is of a type that is none; or another thread has just taken the plan
    if plan.placed != source or not is_in_place:  # to write what is there costs more than to look
        memory = plan.memory
        memory[0] = source
        memory[1] = target
        plan.placed = source if is_in_place else -1
    status = _wait.call(plan.run)
    if status:
        raise _lib.error_of(status)
    free.append(plan)
    return result
