"""Lists of tensors on the host that come again: the short way for a group, as _plans.py has it for one tensor.

What is to be known of the tensors the library asks all of them, by a function that torch has for C; where there is none,
torch's functions for Python do, but without a line of Python for each tensor.
"""

import array
import threading
from typing import Dict, List, Optional, Sequence, Tuple

import torch

from horovod.common import _lib, _wait
from horovod.torch._tensors import DTYPES, VIEW, empty_like, group_names


class Known:
    """Known is a list of tensors that has come before, with the groups of the library's operations that were made of it."""

    __slots__ = ("dtypes", "shapes", "free", "operations")

    def __init__(self, dtypes: List[torch.dtype], shapes: List[torch.Size]) -> None:
        self.dtypes = dtypes
        self.shapes = shapes
        self.free: List[_lib.HostGroup] = []  # those that are not used at the moment; one is taken out for that
        self.operations = 0  # of all groups that were made of it


# The oldest are forgotten.
_known: Dict[Tuple, Known] = {}
_MAX_KNOWN = 1024  # many names never come again
_MAX_OPERATIONS = 16384  # of all groups together
_operations = 0
_lock = threading.Lock()  # for changes of the table

_is_contiguous = torch.Tensor.is_contiguous
_is_neg = torch.Tensor.is_neg
_address = torch.Tensor.data_ptr
_PLAIN = {torch.Tensor, torch.nn.Parameter}  # other classes may show something else than their memory


def _need_gradients(tensors: Sequence[torch.Tensor]) -> bool:
    return True in [tensor.requires_grad for tensor in tensors] and torch.is_grad_enabled()


def prepare(
    tensors: Sequence[torch.Tensor], is_in_place: bool,
    kind: int, prefix: str, name: Optional[str], reduce_op: int, prescale: float, postscale: float, process_set: int,
) -> Optional[Tuple[Known, _lib.HostGroup, List[torch.Tensor]]]:  # fmt: skip
    """Returns a group that was made for such tensors, with their memory set, and the tensors for its results: themselves, or
    new ones. `free` of what it belongs to takes it back.

    None where a list has to go the long way: what is no list, or comes for the first time, with all that is an error; tensors
    that the library cannot use where they are; new tensors that need gradients.
    """
    if not isinstance(tensors, (list, tuple)) or not 0 < len(tensors) <= _lib.MAX_GROUP:
        return None
    tensors = list(tensors)  # another thread may change the caller's
    rest = (float(prescale), float(postscale), process_set)  # a factor may be a tensor, whose value changes
    try:
        if any(map(_is_neg, tensors)) or not is_in_place and _need_gradients(tensors):
            return None
        key = (kind, prefix, name, reduce_op, *rest, len(tensors), tensors[0].shape, tensors[-1].shape)
        taken = _take_by_view(key, tensors, is_in_place) or _take(key, tensors, is_in_place)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return None  # something else than tensors, or tensors without memory
    if taken is None:
        return None
    known, group = taken
    if is_in_place:
        return known, group, tensors
    results = list(map(empty_like, tensors))
    group.set_outputs(array.array("Q", map(_address, results)))
    return known, group, results


def execute_host_group(
    tensors: Sequence[torch.Tensor], is_in_place: bool,
    kind: int, prefix: str, name: Optional[str], reduce_op: int, prescale: float, postscale: float, process_set: int,
) -> Optional[List[torch.Tensor]]:  # fmt: skip
    """Does a group of operations that has come before, and returns the results. None: it has to go the long way, and nothing
    was done."""
    if isinstance(tensors, list):
        tensors = tensors[:]  # they must live until the library is done, and another thread may empty the caller's list
    ready = prepare(tensors, is_in_place, kind, prefix, name, reduce_op, prescale, postscale, process_set)
    if ready is None:
        return None
    known, group, results = ready
    status = _wait.call(group.execute)
    if status:
        raise _lib.error_of(status)
    known.free.append(group)
    return results


def _take_by_view(
    key: Tuple, tensors: Sequence[torch.Tensor], is_in_place: bool
) -> Optional[Tuple[Known, _lib.HostGroup]]:
    """Returns a group that fits, and what it belongs to; its memory is set. The library looks at the tensors itself, in half
    the time that torch's functions take. None: it cannot, or there is no group."""
    known = _known.get(key)
    if VIEW is None or known is None or not known.free or not _PLAIN.issuperset(map(type, tensors)):
        return None
    try:
        group = known.free.pop()
    except IndexError:  # another thread has just taken it
        return None
    fits = False
    try:
        fits = group.set_memory_of(tensors, VIEW, is_in_place)
    finally:
        if not fits:
            known.free.append(group)
    return (known, group) if fits else None


def _take(key: Tuple, tensors: Sequence[torch.Tensor], is_in_place: bool) -> Optional[Tuple[Known, _lib.HostGroup]]:
    """Returns the same, after it has asked torch about the tensors; makes a group if there is none. None for a list that comes
    for the first time, and for one that the library cannot use."""
    if not all([tensor.is_cpu for tensor in tensors]) or not all(map(_is_contiguous, tensors)):
        return None
    inputs = array.array("Q", map(_address, tensors))
    dtypes = [tensor.dtype for tensor in tensors]
    shapes = [tensor.shape for tensor in tensors]
    known = _known.get(key)
    if known is None or known.shapes != shapes or known.dtypes != dtypes:
        _note(key, Known(dtypes, shapes))
        return None
    try:
        group = known.free.pop()
    except IndexError:  # none was made yet, or other threads use them
        if not all(dtype in DTYPES for dtype in dtypes):
            return None
        group = _make_group(key, known)
    group.set_inputs(inputs)
    if is_in_place:
        group.set_outputs(inputs)
    return known, group


def _make_group(key: Tuple, known: Known) -> _lib.HostGroup:
    kind, prefix, name, reduce_op, prescale, postscale, process_set, count, *_ = key
    group = _lib.HostGroup([
        _lib.Plan(kind, DTYPES[dtype], shape, full_name, reduce_op, 0, prescale, postscale, process_set)
        for dtype, shape, full_name in zip(known.dtypes, known.shapes, group_names(prefix, name, count))
    ])  # fmt: skip
    _count(key, known, count)
    return group


def _note(key: Tuple, known: Known) -> None:
    global _operations
    with _lock:
        _forget(key)
        known.operations = len(known.shapes)  # what is kept of a list takes memory before a group is made
        _operations += known.operations
        _known[key] = known
        _forget_oldest()


def _count(key: Tuple, known: Known, operations: int) -> None:
    global _operations
    with _lock:
        if _known.get(key) is known:
            known.operations += operations
            _operations += operations
            _forget_oldest()


def _forget_oldest() -> None:
    while len(_known) > _MAX_KNOWN or _operations > _MAX_OPERATIONS:
        _forget(next(iter(_known)))


def _forget(key: Tuple) -> None:
    global _operations
    known = _known.pop(key, None)
    if known is not None:
        _operations -= known.operations
