"""Broadcasting what is more than one tensor: variables, and any object."""

from typing import Any, Callable, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from horovod.common import _lib, _objects, _wait
from horovod.common.process_sets import ProcessSet, global_process_set, number_of
from horovod.tensorflow.mpi_ops import broadcast, broadcast_, rank
from horovod.tensorflow.util import _executing_eagerly, variable_of


def broadcast_group(variables: Sequence[Any], root_rank: int, process_set: ProcessSet, name: Optional[str] = None) -> Any:
    """Gives variables the root's values. In a graph, the node that does it."""
    assigned = broadcast_(list(variables), root_rank, name, process_set)
    return None if _executing_eagerly() else tf.group(*assigned)


def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Gives all ranks' variables the root's values, typically before training.

    Args:
        variables: tf.Variables or Keras variables, the same in the same order on every rank.
        root_rank: a rank of the job, the same on every rank.
        inplace: accepted for scripts that pass it; variables always stay the same objects.

    Returns:
        Nothing when it is done at once; in a graph the operation that does it.
    """
    return broadcast_group(variables, root_rank, process_set)


def broadcast_array(array: np.ndarray, root_rank: int, name: Optional[str], process_set: ProcessSet) -> None:
    """Overwrites the array with the root's, without TensorFlow."""
    plan = _lib.Plan(
        _lib.BROADCAST, _lib.UINT8, (array.nbytes,), name, root_rank=root_rank, process_set=number_of(process_set)
    )
    status = _wait.call(plan.execute, array.ctypes.data, array.ctypes.data)
    if status:
        raise _lib.error_of(status)


def _gather_arrays(array: np.ndarray, name: Optional[str], process_set: ProcessSet) -> bytes:
    """The bytes of the ranks' arrays, one after the other."""
    import ctypes

    plan = _lib.Plan(_lib.ALLGATHER, _lib.UINT8, (array.nbytes,), name, process_set=number_of(process_set))
    status = _wait.call(plan.execute_for_result, array.ctypes.data, 0)
    handle = plan.handle.value
    try:
        if status:
            raise _lib.error_of(status)
        result = _lib.result(handle)
        return ctypes.string_at(result.data, result.size_bytes) if result.size_bytes else b""
    finally:
        if handle:
            _lib.release(handle)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's object, on every rank; on the root, `obj` itself.

    Args:
        obj: anything that cloudpickle can carry; looked at on the root only.
        root_rank: a rank of the job, the same on every rank.
        session: accepted for scripts of TensorFlow 1; not needed.
        name: the same on every rank.

    Raises:
        HorovodInternalError: a rank or link is gone, or what came was not sent so by a rank of this job.
    """
    is_root = rank() == root_rank
    what = _objects.broadcast_of(root_rank, name, number_of(process_set))
    payload = _objects.sealed(obj, what) if is_root else np.zeros(0, np.uint8)
    length = np.array([payload.nbytes], np.int64)
    broadcast_array(length, root_rank, name and "broadcast_object." + name + ".sz", process_set)
    if not is_root:
        payload = np.empty(int(length[0]), np.uint8)
    broadcast_array(payload, root_rank, name and "broadcast_object." + name + ".t", process_set)
    return obj if is_root else _objects.opened(payload, what)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """`broadcast_object` as a function of the object alone."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """The ranks' objects, in rank order, on every rank.

    Raises:
        HorovodInternalError: a rank or link is gone, or what came was not sent so by a rank of this job.
    """
    number = number_of(process_set)
    payload = _objects.sealed(obj, _objects.allgather_of(rank(), name, number))
    lengths = np.frombuffer(
        _gather_arrays(np.array([payload.nbytes], np.int64), name and "allgather_object." + name + ".sz", process_set),
        np.int64,
    )
    everything = np.frombuffer(_gather_arrays(payload, name and "allgather_object." + name + ".t", process_set), np.uint8)
    parts = np.split(everything, np.cumsum(lengths)[:-1])
    return [_objects.opened(part, _objects.allgather_of(who, name, number)) for who, part in zip(process_set.ranks, parts)]


def broadcast_global_variables(root_rank: int) -> Any:
    """Gives all ranks' global variables the root's values; for graphs of TensorFlow 1.

    Raises:
        RuntimeError: outside of a graph there are no global variables.
    """
    if _executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. "
            "Please use `hvd.broadcast_variables(<model/optimizer variables>)` instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives all ranks' global variables the root's values when a session of TensorFlow 1 begins: a hook of
    MonitoredTrainingSession or an Estimator."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.bcast_op: Any = None
        self.device = device

    def begin(self) -> None:
        if self.bcast_op is None or self.bcast_op.graph != tf.compat.v1.get_default_graph():
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self.bcast_op)


__all__ = [
    "BroadcastGlobalVariablesHook",
    "allgather_object",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "variable_of",
]
