"""Collectives on numpy arrays, for what every front does outside compiled programs: single values, objects, callbacks.

No framework is imported here. Whatever can be had as a numpy array without a copy (a JAX array on the CPU, say) costs none.
All calls wait, so that Ctrl-C works in them (_wait).
"""

import ctypes
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from horovod.common import _lib, _objects, _process_set, _wait, basics
from horovod.common._process_set import ProcessSet, global_process_set

_CODES = {
    "uint8": _lib.UINT8, "int8": _lib.INT8, "uint16": _lib.UINT16, "int16": _lib.INT16, "int32": _lib.INT32,
    "int64": _lib.INT64, "float16": _lib.FLOAT16, "bfloat16": _lib.BFLOAT16, "float32": _lib.FLOAT32,
    "float64": _lib.FLOAT64, "bool": _lib.BOOL,
}  # fmt: skip


def number_of(process_set: ProcessSet) -> int:
    """Returns the set's number. ValueError where the job does not know the set, or this process is no member of it."""
    number = _process_set.number_of(process_set)
    if not process_set.included():
        raise ValueError(f"rank {basics.rank()} is no member of {process_set!r}")
    return number


def check_reducible(dtype: Any, name: Optional[str] = None) -> None:
    """Raises ValueError for elements that cannot be reduced."""
    if np.dtype(dtype).name not in _CODES:
        kind = f"{name}: " if name else ""
        raise ValueError(
            f"{kind}elements of type {np.dtype(dtype).name} cannot be reduced; convert them first, to float32 or int32 say "
            f"(what can: {', '.join(_CODES)})"
        )


def _contiguous(array: Any) -> np.ndarray:
    return np.asarray(array, order="C")


def _bytes_of(array: np.ndarray) -> np.ndarray:
    """Returns the array as one of a type that libhvd knows, with the same rows, since it is only moved."""
    if array.dtype.name in _CODES:
        return array
    if array.dtype.hasobject:
        raise ValueError("an array of Python objects cannot be sent; use broadcast_object or allgather_object")
    return array.reshape(array.shape + (1,)).view(np.uint8)


def _plan(kind: int, array: np.ndarray, name: Optional[str], **options: Any) -> _lib.Plan:
    return _lib.Plan(kind, _CODES[array.dtype.name], array.shape, name, **options)


def allreduce(
    arrays: Sequence[Any],
    names: Sequence[Optional[str]],
    op: int = _lib.AVERAGE,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[np.ndarray]:
    """Returns the reductions of arrays as new ones, which are done together or not at all.

    Raises:
        ValueError: elements that cannot be reduced, or a process set that this process cannot use.
        HorovodInternalError: ranks disagree, or one is gone; on every rank.
    """
    inputs = [_contiguous(array) for array in arrays]
    for array, name in zip(inputs, names):
        check_reducible(array.dtype, name)
    outputs = [np.empty_like(array) for array in inputs]
    number = number_of(process_set)
    plans = [
        _plan(_lib.ALLREDUCE, array, name, reduce_op=op, prescale=prescale, postscale=postscale, process_set=number)
        for array, name in zip(inputs, names)
    ]
    if len(plans) == 1:
        _lib.check(_wait.call(plans[0].execute, inputs[0].ctypes.data, outputs[0].ctypes.data))
        return outputs
    for begin in range(0, len(plans), _lib.MAX_GROUP):
        part = range(begin, min(begin + _lib.MAX_GROUP, len(plans)))
        for i in part:
            plans[i].memory[0] = inputs[i].ctypes.data
            plans[i].memory[1] = outputs[i].ctypes.data
        handles = _lib.HandleArray(len(part))
        _lib.check(_lib.Group([plans[i] for i in part], handles.place(0)).enqueue())
        _wait.finish(handles)
    return outputs


def broadcast(
    arrays: Sequence[Any], names: Sequence[Optional[str]], root_rank: int, process_set: ProcessSet = global_process_set
) -> List[np.ndarray]:
    """Returns the root's arrays, as new ones even on the root. Shapes and types are the same on every rank.

    Raises:
        ValueError: a process set that this process cannot use.
        HorovodInternalError: ranks disagree, or one is gone; on every rank.
    """
    inputs = [_contiguous(array) for array in arrays]
    number = number_of(process_set)
    sent = [_bytes_of(array) for array in inputs]
    outputs = [np.empty_like(array) for array in sent]
    batch = _lib.Batch(len(sent))
    plans = []
    for array, output, name in zip(sent, outputs, names):
        plan = _plan(_lib.BROADCAST, array, name, root_rank=root_rank, process_set=number)
        plan.memory[0] = array.ctypes.data
        plan.memory[1] = output.ctypes.data
        plans.append(plan)  # they are kept until the end
        batch.addresses.append(plan.address)
    status = batch.start(_lib.WAITS_NEXT)
    failure = _lib.error_of(status) if status else None
    _wait.finish(batch.handles)
    if failure is not None:
        raise failure
    return [output.view(array.dtype).reshape(array.shape) for array, output in zip(inputs, outputs)]


def broadcast_into(array: np.ndarray, root_rank: int, name: Optional[str], process_set: ProcessSet = global_process_set) -> None:
    """Overwrites an array of a type that libhvd knows with the root's. Errors: as `broadcast`."""
    plan = _plan(_lib.BROADCAST, array, name, root_rank=root_rank, process_set=number_of(process_set))
    _lib.check(_wait.call(plan.execute, array.ctypes.data, array.ctypes.data))


def _cut(
    kind: int, array: Any, name: Optional[str], process_set: ProcessSet, **options: Any
) -> Tuple[np.ndarray, List[int]]:
    """Returns the result of an operation that changes the number of rows, and how many rows came from each rank."""
    own = _contiguous(array)
    sent = _bytes_of(own) if kind != _lib.REDUCESCATTER else own
    plan = _plan(kind, sent, name, process_set=number_of(process_set), **options)
    status = _wait.call(plan.execute_for_result, sent.ctypes.data, 0)
    handle = plan.handle.value
    try:
        _lib.check(status)
        output = _lib.result(handle)
        result = np.empty(tuple(output.shape[: output.ndim]), sent.dtype)
        ctypes.memmove(result.ctypes.data, output.data, output.size_bytes)
        received = output.received_splits[: output.received_count] if output.received_count else []
    finally:
        if handle:
            _lib.release(handle)
    return result.view(own.dtype).reshape(result.shape[: own.ndim]), received


def allgather(array: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> np.ndarray:
    """Returns all ranks' arrays one after the other along dimension 0, in which they may differ."""
    return _cut(_lib.ALLGATHER, array, name, process_set)[0]


def alltoall(
    array: Any, splits: Optional[Sequence[int]] = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Tuple[np.ndarray, List[int]]:
    """Returns the rows that the ranks send here, and how many came from each. `splits` says how many go to each; None:
    even shares."""
    return _cut(_lib.ALLTOALL, array, name, process_set, splits=[int(n) for n in splits] if splits is not None else ())


def reducescatter(
    array: Any,
    name: Optional[str] = None,
    op: int = _lib.AVERAGE,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> np.ndarray:
    """Returns this rank's rows of the reduction."""
    check_reducible(np.asarray(array).dtype, name)
    return _cut(_lib.REDUCESCATTER, array, name, process_set, reduce_op=op, prescale=prescale, postscale=postscale)[0]


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all members have called it."""
    plan = _lib.Plan(_lib.BARRIER, _lib.UINT8, (), None, process_set=number_of(process_set))
    _lib.check(_wait.call(plan.execute, 0, 0))


def _names_of_object(operation: str, name: Optional[str]) -> Tuple[Optional[str], Optional[str]]:
    """Returns the names under which an object's size and its bytes travel. None: they are numbered, as are those of an empty name."""
    return (f"{operation}.{name}.sz", f"{operation}.{name}.t") if name else (None, None)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns the root's object on every rank; on the root, `obj` itself.

    Args:
        obj: anything that cloudpickle can carry; looked at on the root only.
        root_rank: 0 ... size() - 1, the same on every rank.
        name: the same on every rank.

    Raises:
        HorovodInternalError: a rank or link is gone; on every rank. Or what came was not sent so by a rank of this job.
        Whatever pickling raises, on the root; the other ranks then wait until the root comes again or ends.
    """
    is_root = basics.rank() == root_rank
    what = _objects.broadcast_of(root_rank, name, number_of(process_set))
    payload = _objects.sealed(obj, what) if is_root else np.empty(0, np.uint8)
    size = np.array([payload.size], np.int64)
    of_size, of_payload = _names_of_object("broadcast_object", name)
    broadcast_into(size, root_rank, of_size, process_set)
    if not is_root:
        payload = np.empty(int(size[0]), np.uint8)
    broadcast_into(payload, root_rank, of_payload, process_set)
    return obj if is_root else _objects.opened(payload, what)


def allgather_object(obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> List[Any]:
    """Returns the ranks' objects, in rank order, on every rank. `obj` is anything that cloudpickle can carry.

    Raises:
        HorovodInternalError: a rank or link is gone, or what came was not sent so by a rank of this job.
    """
    number = number_of(process_set)
    payload = _objects.sealed(obj, _objects.allgather_of(basics.rank(), name, number))
    of_size, of_payload = _names_of_object("allgather_object", name)
    sizes = allgather(np.array([payload.size], np.int64), of_size, process_set)
    everything = allgather(payload, of_payload, process_set)
    parts = np.split(everything, np.cumsum(sizes)[:-1])
    return [_objects.opened(part, _objects.allgather_of(rank, name, number)) for rank, part in zip(process_set.ranks, parts)]
