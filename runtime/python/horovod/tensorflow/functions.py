"""Broadcasting what is more than one tensor: variables, and any object."""

from typing import Any, Callable, List, Optional, Sequence

import tensorflow as tf

from horovod.common import _arrays
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.mpi_ops import broadcast, broadcast_
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
    return _arrays.broadcast_object(obj, root_rank, name, process_set)


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
    return _arrays.allgather_object(obj, name, process_set)


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
