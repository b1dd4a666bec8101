"""Operations on tensors: done at once, or in flight behind a handle.

What all operations share: which types travel, memory that the library can read and write, plans of operations that come
again, and the table of handles.
"""

import array
import ctypes
import itertools
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from horovod.common import _lib, _wait, basics
from horovod.common.exceptions import HorovodInternalError
from horovod.torch._device import Place, follow, place_of, tell_about_staging

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

# Plans of earlier operations that may be repeated, by their arguments, and for a GPU by its number too. One is taken
# out while it is used, so that no two threads have the same.
_plans: Dict[Tuple, _lib.Plan] = {}
_MAX_PLANS = 1024  # limits how many plans with names that never come again are kept


def _take_plan(key: Tuple, place: Optional[Place] = None) -> _lib.Plan:
    """`key` holds the arguments of _lib.Plan."""
    if place is None:
        return _plans.pop(key, None) or _lib.Plan(*key)
    plan = _plans.pop((place.device, key), None) or _lib.Plan(*key)
    plan.work_at(*place)
    return plan


def _keep_plan(key: Tuple, plan: _lib.Plan, place: Optional[Place] = None) -> None:
    if len(_plans) >= _MAX_PLANS:
        _plans.clear()
    _plans[key if place is None else (place.device, key)] = plan


def dtype_of(tensor: torch.Tensor) -> int:
    """Returns the library's number of the tensor's type. ValueError for a type that cannot be sent."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"a torch tensor is needed, not {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"Tensors of layout {tensor.layout} are not supported here; use tensor.to_dense() or "
            "hvd.sparse_allreduce_async."
        )
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise ValueError(f"Tensor type {tensor.dtype} is not supported.")
    return dtype


def within_reach(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the values in contiguous memory that the library can use: the tensor itself if it is there already."""
    tensor = tensor.detach()
    if not tensor.is_cpu and place_of(tensor) is None:
        tell_about_staging(tensor)
        tensor = tensor.cpu()
    return tensor.resolve_neg().contiguous()


def empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """Returns new memory of the same shape, which is contiguous whatever the tensor's own layout is."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def needs_gradient(tensor: torch.Tensor) -> bool:
    """Returns whether autograd must know of an operation on the tensor. To tell it costs more than a small operation
    does."""
    return isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled()


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


def is_in_place(tensor: torch.Tensor) -> bool:
    """Returns whether the library can work in the tensor's own memory on the host: its values are there, in order."""
    return tensor.is_cpu and tensor.is_contiguous() and not tensor.is_neg()


class Target:
    """Target says where the library reads a tensor and writes its result.

    That is the tensors' own memory where the library can use it, else copies: contiguous, and on the host unless the
    library works on the tensors' GPU.
    """

    __slots__ = ("dtype", "shape", "place", "source", "memory", "output")

    def __init__(self, tensor: torch.Tensor, output: torch.Tensor) -> None:
        self.dtype = dtype_of(tensor)
        self.shape = tensor.shape
        self.place: Optional[Place] = None
        if is_in_place(tensor) and (output is tensor or is_in_place(output)):
            self.source, self.memory, self.output = tensor, output, output
            return
        self.source = within_reach(tensor)
        self.place = place_of(self.source)
        self.output = output
        # The output's own memory where it can be written, else the contiguous copy of an in-place operation, else
        # memory of its own.
        if output.device == self.source.device and output.is_contiguous() and not output.is_neg():
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


def run_into(
    kind: int, prefix: str, tensor: torch.Tensor, output: torch.Tensor, name: Optional[str],
    reduce_op: int = _lib.SUM, root_rank: int = 0, prescale: float = 1.0, postscale: float = 1.0, process_set: int = 0,
) -> int:  # fmt: skip
    """Starts an operation on `tensor` whose result goes into `output`, which may be the same tensor. Returns our
    handle."""
    target = Target(tensor, output)
    full_name = None if name is None else prefix + name
    # A factor may be a tensor, whose value changes.
    prescale, postscale = float(prescale), float(postscale)
    key = (kind, target.dtype, target.shape, full_name, reduce_op, root_rank, prescale, postscale, process_set)
    plan = _take_plan(key, target.place)
    handle = _put_in_flight(
        target, target.finish, _enqueue_one, plan, target.source.data_ptr(), target.memory.data_ptr()
    )
    _keep_plan(key, plan, target.place)
    return handle


def execute_into(
    kind: int, prefix: str, tensor: torch.Tensor, output: torch.Tensor, name: Optional[str],
    reduce_op: int = _lib.SUM, root_rank: int = 0, prescale: float = 1.0, postscale: float = 1.0, process_set: int = 0,
) -> torch.Tensor:  # fmt: skip
    """Does what `run_into` starts; returns `output`."""
    target = Target(tensor, output)
    full_name = None if name is None else prefix + name
    # A factor may be a tensor, whose value changes.
    prescale, postscale = float(prescale), float(postscale)
    key = (kind, target.dtype, target.shape, full_name, reduce_op, root_rank, prescale, postscale, process_set)
    plan = _take_plan(key, target.place)
    status = _wait.call(plan.execute, target.source.data_ptr(), target.memory.data_ptr())
    if status:
        raise _lib.error_of(status)
    _keep_plan(key, plan, target.place)
    return target.finish()


# ---- operations whose output the library allocates ----


def start(source: torch.Tensor, finish: Callable[[int], Any], *plan: Any) -> int:
    """Starts an operation (the arguments of _lib.Plan) on a tensor within reach. Returns our handle for it.

    `finish` makes the result of what the library's handle has left.
    """
    taken = _take_plan(plan, place_of(source))
    return _put_in_flight(source, finish, _enqueue_one, taken, source.data_ptr(), 0)


def execute(source: Optional[torch.Tensor], finish: Callable[[int], Any], *plan: Any) -> Any:
    """Does what `start` starts (a join has no source). Returns what `finish` makes."""
    place = None if source is None else place_of(source)
    taken = _take_plan(plan, place)
    status = _wait.call(taken.execute_for_result, 0 if source is None else source.data_ptr(), 0)
    handle = taken.handle.value
    try:
        if status:
            raise _lib.error_of(status)
        _keep_plan(plan, taken, place)
        return finish(handle)
    finally:
        if handle:
            _lib.release(handle)


def execute_without_tensor(kind: int, process_set: int = 0) -> None:
    """Executes an operation without a tensor: a barrier."""
    key = (kind, _lib.UINT8, (), None, _lib.SUM, 0, 1.0, 1.0, process_set)
    plan = _take_plan(key)
    status = _wait.call(plan.execute, 0, 0)
    if status:
        raise _lib.error_of(status)
    _keep_plan(key, plan)


def result_tensor(done: int, like: torch.Tensor) -> torch.Tensor:
    """Returns what the runtime allocated for a finished operation, as a tensor of `like`'s type and device."""
    result = _lib.result(done)
    shape = result.shape[: result.ndim]
    place = place_of(like)
    if place is not None:
        tensor = torch.empty(shape, dtype=like.dtype, device=like.device)
        if result.size_bytes:
            _lib.fetch(done, tensor.data_ptr(), result.size_bytes, place.stream)
        return tensor
    tensor = torch.empty(shape, dtype=like.dtype)
    if result.size_bytes:
        ctypes.memmove(tensor.data_ptr(), result.data, result.size_bytes)
    return tensor if like.is_cpu else tensor.to(like.device)


# ---- groups ----


def start_group(keep: Any, finishes: Sequence[Callable[[int], Any]], plans: Sequence[_lib.Plan]) -> int:
    """Starts plans whose memory is set, to be done together. Returns one handle, whose result is the list of theirs."""

    def finish(*done: int) -> List:
        return [finish_one(one) for finish_one, one in zip(finishes, done)]

    return _put_in_flight(keep, finish, _lib.enqueue_group, plans)


# Groups of earlier calls, by what is the same when one comes again: None after the first time, since many names never come
# again. One is taken out while it is used. The oldest are forgotten.
_host_groups: Dict[Tuple, Optional[_lib.HostGroup]] = {}
_MAX_HOST_GROUPS = 1024
_MAX_HOST_OPERATIONS = 16384  # of all of them together
_host_operations = 0

_is_contiguous = torch.Tensor.is_contiguous
_is_neg = torch.Tensor.is_neg
_address = torch.Tensor.data_ptr


def _addresses_of(tensors: Sequence[torch.Tensor]) -> "Optional[array.array[int]]":
    """Returns where the tensors' values are, or None if the library cannot use all of them where they are, on the host.
    The calls are torch's own, without a line of Python for each tensor."""
    try:
        if (
            all([tensor.is_cpu and tensor.layout is torch.strided for tensor in tensors])
            and all(map(_is_contiguous, tensors))
            and not any(map(_is_neg, tensors))
        ):
            return array.array("Q", map(_address, tensors))
    except (AttributeError, RuntimeError, TypeError):
        pass  # something else than tensors, or tensors without memory
    return None


def _make_host_group(key: Tuple) -> Optional[_lib.HostGroup]:
    kind, prefix, name, reduce_op, prescale, postscale, process_set, dtypes, shapes = key
    if not all(dtype in _DTYPES for dtype in dtypes):
        return None
    names = group_names(prefix, name, len(dtypes))
    return _lib.HostGroup([
        _lib.Plan(kind, _DTYPES[dtype], shape, full_name, reduce_op, 0, prescale, postscale, process_set)
        for dtype, shape, full_name in zip(dtypes, shapes, names)
    ])  # fmt: skip


def _take_host_group(key: Tuple) -> Optional[_lib.HostGroup]:
    """Returns the group if it may be used now: not for a key that comes for the first time, and not for types that cannot be
    sent."""
    global _host_operations
    if key not in _host_groups:
        _put_host_group(key, None)
        return None
    group = _host_groups.pop(key)
    if group is None:
        return _make_host_group(key)
    _host_operations -= group.count
    return group


def _put_host_group(key: Tuple, group: Optional[_lib.HostGroup]) -> None:
    global _host_operations
    _host_groups[key] = group
    _host_operations += 0 if group is None else group.count
    while len(_host_groups) > _MAX_HOST_GROUPS or _host_operations > _MAX_HOST_OPERATIONS:
        oldest = _host_groups.pop(next(iter(_host_groups)))
        _host_operations -= 0 if oldest is None else oldest.count


def start_host_group(
    tensors: Sequence[torch.Tensor], outputs: Optional[Sequence[torch.Tensor]],
    kind: int, prefix: str, name: Optional[str], reduce_op: int, prescale: float, postscale: float, process_set: int,
) -> Optional[int]:  # fmt: skip
    """Starts a group that has come before, and whose inputs and outputs are on the host (outputs: None for the tensors
    themselves). Returns our handle, or None where it has to be started in the usual way: then nothing has been started."""
    if not isinstance(tensors, (list, tuple)) or not 0 < len(tensors) <= _lib.MAX_GROUP:
        return None
    inputs = _addresses_of(tensors)
    results = inputs if inputs is None or outputs is None else _addresses_of(outputs)
    if inputs is None or results is None:
        return None
    key = (
        kind, prefix, name, reduce_op, float(prescale), float(postscale), process_set,
        tuple([tensor.dtype for tensor in tensors]), tuple([tensor.shape for tensor in tensors]),
    )  # fmt: skip
    group = _take_host_group(key)
    if group is None:
        return None
    given = list(tensors if outputs is None else outputs)
    pending = _Pending((list(tensors), given), lambda: given)
    handle = next(_handles)
    _pending[handle] = pending  # before the library has the memory, because a KeyboardInterrupt in between must not free it
    try:
        pending.together = group.enqueue(inputs, results)
    except Exception:
        del _pending[handle]
        raise
    pending.library_handles = pending.together.array
    _put_host_group(key, group)
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


def check_group(tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """Returns the tensors of a group as a list. ValueError for anything else."""
    if isinstance(tensors, torch.Tensor) or not 0 < len(tensors) <= _lib.MAX_GROUP:
        raise ValueError(f"a group is a list of 1 to {_lib.MAX_GROUP} tensors")
    for tensor in tensors:
        dtype_of(tensor)
    return list(tensors)


def group_names(prefix: str, name: Optional[str], count: int) -> List[Optional[str]]:
    """Returns each tensor's name. Horovod's ends with the number of tensors, "_1of3": ranks that disagree about the
    number would wait for each other there. Here they get an error."""
    return [None if name is None else f"{prefix}{name}_{i + 1}" for i in range(count)]


# ---- what users call ----


def check_in_place(tensor: torch.Tensor) -> None:
    """Raises ValueError unless an operation can work in the tensor's own memory."""
    if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")


def poll(handle: int) -> bool:
    """Returns whether `synchronize` of the handle would return at once. ValueError for an unknown handle."""
    pending = _pending.get(handle)
    if pending is None:
        raise ValueError(f"no operation has the handle {handle!r}, or synchronize has taken it")
    _wait.start_collected()  # it may depend on that, and the caller may ask until it is done
    return pending.generation != basics.generation or all(map(_lib.is_done, pending.library_handles))


def _finish_together(handle: int, pending: _Pending) -> Any:
    try:
        status = _wait.call(pending.together.finish)
    finally:
        if not any(pending.library_handles):  # else Ctrl-C came before the wait, and the library has the memory
            _pending.pop(handle, None)
    if status:
        raise _lib.error_of(status)
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
