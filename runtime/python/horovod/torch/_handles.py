"""Operations on tensors: done at once, or in flight behind a handle.

What all operations share: the long way, on which everything is checked, and the table of handles.
"""

import ctypes
import itertools
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from horovod.common import _lib, _wait, basics
from horovod.common.exceptions import HorovodInternalError
from horovod.torch._device import Place, follow, place_of
from horovod.torch._host_groups import prepare as prepare_host_group
from horovod.torch._plans import plans_of, take_plan
from horovod.torch._tensors import DTYPES, MOVED, dtype_of, full_name, group_names, is_in_place, shape_in_rows, shape_of, within_reach


class _Pending:
    """_Pending is an operation in flight, or a group of them. It keeps its memory alive, and knows what to do at its
    end."""

    __slots__ = ("library_handles", "together", "generation", "keep", "finish")

    def __init__(self, keep: Any, finish: Callable[..., Any]) -> None:
        self.library_handles: Sequence[int] = ()
        self.together: Optional[_lib.HandleArray] = None  # those handles, if their results are in the memory of `keep`
        self.generation = basics.generation
        self.keep = keep
        self.finish = finish


# These numbers are ours, not the library's, because those may be reused after shutdown and init.
_pending: Dict[int, _Pending] = {}
_handles = itertools.count(1)


def library_handle(handle: int) -> Optional[int]:
    """Returns the library's handle of an operation in flight, for a group that of the first. None: it is over, or the
    job was left."""
    pending = _pending.get(handle)
    if pending is None or pending.generation != basics.generation or not pending.library_handles:
        return None
    return pending.library_handles[0]


def _enqueue_one(plan: _lib.Plan, source: int, memory: int) -> Tuple[int, ...]:
    return (plan.enqueue(source, memory),)


def _put_in_flight(
    keep: Any, finish: Callable[..., Any], enqueue: Callable[..., Tuple[int, ...]], *arguments: Any
) -> int:
    handle = next(_handles)
    # The entry is made before the library has the memory, because a KeyboardInterrupt in between must not free it.
    pending = _pending[handle] = _Pending(keep, finish)
    try:
        pending.library_handles = enqueue(*arguments)
    except Exception:
        del _pending[handle]
        raise
    return handle


# ---- operations whose output is as large as their input ----


class Target:
    """Target says where the library reads a tensor and writes its result.

    That is the tensors' own memory where the library can use it, else copies: contiguous, and on the host unless the
    library works on the tensors' GPU. `op`: what the operation does with the values, for dtype_of().
    """

    __slots__ = ("dtype", "shape", "place", "source", "memory", "output")

    def __init__(self, tensor: torch.Tensor, output: torch.Tensor, op: int) -> None:
        self.dtype = dtype_of(tensor, op)
        self.shape = shape_of(tensor)
        self.place: Optional[Place] = None
        if is_in_place(tensor) and (output is tensor or is_in_place(output)):
            self.source, self.memory, self.output = tensor, output, output
            return
        self.source = within_reach(tensor)
        self.place = place_of(self.source)
        self.output = output
        # The output's own memory where it can be written, else the contiguous copy of an in-place operation, else
        # memory of its own.
        is_as_it_reads = output.is_contiguous() and not output.is_neg() and not output.is_conj()
        if output.device == self.source.device and is_as_it_reads:
            self.memory = output
        elif output is tensor:
            self.memory = self.source
        else:
            self.memory = torch.empty(output.shape, dtype=output.dtype, device=self.source.device)

    def finish(self, *_: int) -> torch.Tensor:
        """Returns the output when the operation has ended."""
        stream = None if self.place is None else follow(self.place)
        if self.memory is not self.output:
            with torch.no_grad():
                self.output.copy_(self.memory)
        if stream is not None:
            self.memory.record_stream(stream)  # it may be a copy, whose memory torch may reuse on the other stream
        return self.output


def _take_plan_into(
    target: Target, kind: int, prefix: str, name: Optional[str], reduce_op: int, root_rank: int, prescale: float,
    postscale: float, process_set: int,
) -> Tuple[List[_lib.Plan], _lib.Plan]:  # fmt: skip
    """Returns a plan, and the list that takes it back. `execute_again` makes the same key of its arguments."""
    # A factor may be a tensor, whose value changes.
    prescale, postscale = float(prescale), float(postscale)
    shape, place = target.shape, target.place
    # What the library has no type for has another shape on its way, and must not be taken for a tensor of that shape.
    dtype = target.source.dtype if target.source.dtype in DTYPES else target.dtype
    key = (kind, dtype, shape, name, reduce_op, root_rank, prescale, postscale, process_set)
    free = plans_of(key, place)
    plan = take_plan(free)
    if plan is None:
        plan = _lib.Plan(
            kind, target.dtype, shape, full_name(prefix, name), reduce_op, root_rank, prescale, postscale, process_set
        )
    if place is not None:
        plan.work_at(*place)
    return free, plan


def run_into(
    kind: int, prefix: str, tensor: torch.Tensor, output: torch.Tensor, name: Optional[str],
    reduce_op: int = _lib.SUM, root_rank: int = 0, prescale: float = 1.0, postscale: float = 1.0, process_set: int = 0,
) -> int:  # fmt: skip
    """Starts an operation on `tensor` whose result goes into `output`, which may be the same tensor. Returns our
    handle."""
    target = Target(tensor, output, MOVED if kind == _lib.BROADCAST else reduce_op)
    free, plan = _take_plan_into(target, kind, prefix, name, reduce_op, root_rank, prescale, postscale, process_set)
    handle = _put_in_flight(
        target, target.finish, _enqueue_one, plan, target.source.data_ptr(), target.memory.data_ptr()
    )
    free.append(plan)
    return handle


def execute_into(
    kind: int, prefix: str, tensor: torch.Tensor, output: torch.Tensor, name: Optional[str],
    reduce_op: int = _lib.SUM, root_rank: int = 0, prescale: float = 1.0, postscale: float = 1.0, process_set: int = 0,
) -> torch.Tensor:  # fmt: skip
    """Does what `run_into` starts; returns `output`."""
    target = Target(tensor, output, MOVED if kind == _lib.BROADCAST else reduce_op)
    free, plan = _take_plan_into(target, kind, prefix, name, reduce_op, root_rank, prescale, postscale, process_set)
    status = _wait.call(plan.execute, target.source.data_ptr(), target.memory.data_ptr())
    if status:  # no call of check(): it would be a fortieth of a small operation
        raise _lib.error_of(status)
    free.append(plan)
    return target.finish()


# ---- operations whose output the library allocates ----


def _take_plan_of(arguments: Tuple, place: Optional[Place]) -> Tuple[List[_lib.Plan], _lib.Plan]:
    """Returns the same for these arguments of _lib.Plan, which are the key too."""
    free = plans_of(arguments, place)
    plan = take_plan(free) or _lib.Plan(*arguments)
    if place is not None:
        plan.work_at(*place)
    return free, plan


def start(source: torch.Tensor, finish: Callable[[int], Any], *plan: Any) -> int:
    """Starts an operation (the arguments of _lib.Plan) on a tensor within reach. Returns our handle for it.

    `finish` makes the result of what the library's handle has left.
    """
    place = place_of(source)
    free, taken = _take_plan_of(plan, place)
    handle = _put_in_flight(source, finish, _enqueue_one, taken, source.data_ptr(), 0)
    free.append(taken)
    return handle


def execute(source: Optional[torch.Tensor], finish: Callable[[int], Any], *plan: Any) -> Any:
    """Does what `start` starts (a join has no source). Returns what `finish` makes."""
    place = None if source is None else place_of(source)
    free, taken = _take_plan_of(plan, place)
    status = _wait.call(taken.execute_for_result, 0 if source is None else source.data_ptr(), 0)
    handle = taken.handle.value
    try:
        _lib.check(status)
        free.append(taken)
        return finish(handle)
    finally:
        if handle:
            _lib.release(handle)


def execute_without_tensor(kind: int, process_set: int = 0) -> None:
    """Executes an operation without a tensor: a barrier."""
    key = (kind, _lib.UINT8, (), None, _lib.SUM, 0, 1.0, 1.0, process_set)
    free, plan = _take_plan_of(key, None)
    _lib.check(_wait.call(plan.execute, 0, 0))
    free.append(plan)


def result_tensor(done: int, like: torch.Tensor) -> torch.Tensor:
    """Returns what the runtime allocated for a finished operation, as a tensor of `like`'s type and device."""
    result = _lib.result(done)
    shape = result.shape[: result.ndim if like.dtype in DTYPES else result.ndim - 1]  # see shape_of()
    place = place_of(like)
    if place is not None:
        tensor = torch.empty(shape, dtype=like.dtype, device=like.device)
        if result.size_bytes:
            _lib.fetch(done, tensor.data_ptr(), result.size_bytes, place.stream)
        return tensor
    tensor = torch.empty(shape, dtype=like.dtype, device="cpu")
    if result.size_bytes:
        ctypes.memmove(tensor.data_ptr(), result.data, result.size_bytes)
    return tensor if like.is_cpu else tensor.to(like.device)


# ---- groups ----


def start_group(keep: Any, finishes: Sequence[Callable[[int], Any]], plans: Sequence[_lib.Plan]) -> int:
    """Starts plans whose memory is set, to be done together. Returns one handle, whose result is the list of theirs."""

    def finish(*done: int) -> List:
        return [finish_one(one) for finish_one, one in zip(finishes, done)]

    return _put_in_flight(keep, finish, _lib.enqueue_group, plans)


def start_host_group(
    tensors: Sequence[torch.Tensor], is_in_place: bool,
    kind: int, prefix: str, name: Optional[str], reduce_op: int, prescale: float, postscale: float, process_set: int,
) -> Optional[int]:  # fmt: skip
    """Starts a group that has come before, of tensors on the host whose results are as large. Returns our handle, or None
    where it has to go the long way: then nothing has been started."""
    ready = prepare_host_group(
        tensors, is_in_place, kind, prefix, name, reduce_op, prescale, postscale, process_set
    )
    if ready is None:
        return None
    known, group, results = ready
    pending = _Pending((list(tensors), results), lambda: results)
    handle = next(_handles)
    _pending[handle] = pending  # before the library has the memory, because a KeyboardInterrupt in between must not free it
    try:
        pending.together = group.enqueue()
    except Exception:
        del _pending[handle]
        raise
    pending.library_handles = pending.together.array
    known.free.append(group)
    return handle


def plan_on(source: torch.Tensor, output: Optional[torch.Tensor], *arguments: Any) -> _lib.Plan:
    """Returns a plan (the arguments of _lib.Plan) with its memory."""
    plan = _lib.Plan(*arguments)
    place = place_of(source)
    if place is not None:
        plan.work_at(*place)
    plan.memory[0] = source.data_ptr()
    plan.memory[1] = 0 if output is None else output.data_ptr()
    return plan


def start_rows_group(
    kind: int, prefix: str, tensors: Sequence[torch.Tensor], name: Optional[str], process_set: int,
    reduce_op: int = _lib.SUM, prescale: float = 1.0, postscale: float = 1.0,
) -> int:  # fmt: skip
    """Starts operations that cut or join tensors along the first dimension, as `start_group`."""
    sources = [within_reach(tensor) for tensor in tensors]
    op = MOVED if kind == _lib.ALLGATHER else reduce_op
    plans = [
        plan_on(
            source, None,
            kind, dtype_of(source, op), shape_in_rows(source), one_name, reduce_op, 0, prescale, postscale, process_set,
        )
        for source, one_name in zip(sources, group_names(prefix, name, len(tensors)))
    ]  # fmt: skip
    return start_group(sources, [lambda done, t=tensor: result_tensor(done, t) for tensor in tensors], plans)


# ---- what users call ----


def poll(handle: int) -> bool:
    """Returns whether `synchronize` of the handle would return at once. ValueError for an unknown handle."""
    pending = _pending.get(handle)
    if pending is None:
        raise ValueError(f"no operation has the handle {handle!r}, or synchronize has taken it")
    _wait.start_collected()  # it may depend on that, and the caller may ask until it is done
    try:
        return pending.generation != basics.generation or all(
            not each or _lib.is_done(each)  # 0: a thread that synchronizes has taken it
            for each in pending.library_handles
        )
    except HorovodInternalError:
        if handle in _pending:
            raise
        return True  # another thread has just completed it


def _finish_together(handle: int, pending: _Pending) -> Any:
    try:
        status = _wait.call(pending.together.finish)
    finally:
        if not any(pending.library_handles):  # else Ctrl-C came before the wait, and the library has the memory
            _pending.pop(handle, None)
    _lib.check(status)
    return pending.finish()


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation and returns what it gives, a tensor mostly; None for a handle that is unknown or was taken.

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
    # The entry stays until the waits have returned: it holds the memory that the library works on.
    if pending.together is not None:
        return _finish_together(handle, pending)
    error = None
    for library_handle in pending.library_handles:
        status = _wait.wait(library_handle)
        if status and error is None:
            error = _lib.error_of(status)
    _pending.pop(handle, None)
    try:
        if error is not None:
            raise error
        return pending.finish(*pending.library_handles)
    finally:
        for library_handle in pending.library_handles:
            _lib.release(library_handle)
