"""The operations, each with its gradient: at once outside of graphs, and as nodes of a graph within."""

import ctypes
import re
import struct
from typing import Any, List, Optional, Sequence, Tuple, Union

import numpy as np
import tensorflow as tf

from horovod.common import _lib, _wait
from horovod.common import basics as _basics
from horovod.common._exports import *  # noqa: F403  (scripts import them from here)
from horovod.common.basics import sycl_built as sycl_built
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set, number_of
from horovod.common.util import check_num_rank_power_of_2, choose_op, num_rank_is_power_2  # noqa: F401
from horovod.tensorflow import _xla
from horovod.tensorflow._library import operations as _operations
from horovod.tensorflow.util import _executing_eagerly, is_in_xla, name_of, variable_of


def handle_average_backwards_compatibility(op: Optional[int], average: Optional[bool]) -> int:
    """The operator that a call means by `op` and the deprecated `average`."""
    return choose_op(op, average)


def nccl_built(verbose: bool = False) -> int:
    """Returns 0, since tensors of TensorFlow are reduced in the host's memory, whatever NCCL there is. Scripts choose by it by
    how much they scale Adasum's learning rate."""
    return 0


def gpu_available(ext_base_name: str = "tensorflow", verbose: bool = False) -> bool:
    """Whether TensorFlow sees a GPU here."""
    return bool(tf.config.list_physical_devices("GPU"))


def _normalize_name(name: str) -> str:
    """A name that a node of a graph may have."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _bits(scale: float) -> int:
    """A double as an attribute, of which there are none."""
    return struct.unpack("<q", struct.pack("<d", scale))[0] if scale != 1.0 else 0


def _label(tensor: Any) -> str:
    return _normalize_name(getattr(tensor, "name", None) or "tensor")


def _run(kind: str, tensors: Any, name: Optional[str], labels: Sequence[Any], *more: Any, **attributes: Any) -> Any:
    """An operation of ours: `kind` as in "HorovodAllreduce"."""
    function = getattr(_operations, "horovod_" + "".join(f"_{c.lower()}" if c.isupper() else c for c in kind)[1:])
    if _executing_eagerly():
        # The caller waits anyway. Unnamed calls are numbered by libhvd. TensorFlow keeps one kernel for each name, so
        # only a name that the caller has given is passed.
        tensor_name = "" if name is None else f"{kind}.{name}"
        return _wait.call(lambda: function(tensors, *more, tensor_name=tensor_name, wait=True, **attributes))
    if is_in_xla(tf.compat.v1.get_default_graph()):
        raise _xla.not_compiled(kind)
    node = _normalize_name(name) if name is not None else f"Horovod{kind}_{_label(labels[0] if labels else None)}"
    if not re.match(r"[A-Za-z0-9]", node):
        node = "Horovod" + node
    with tf.device("/device:CPU:0"):  # the kernels are there; tensors on GPUs are copied to it and back
        return function(tensors, *more, name=node, **attributes)


def _reduction(op: int, prescale_factor: float, postscale_factor: float) -> dict:
    return {
        "reduce_op": op,
        "prescale_factor": prescale_factor,
        "postscale_factor": postscale_factor,
        "prescale_bits": _bits(prescale_factor),
        "postscale_bits": _bits(postscale_factor),
    }


def _set_size(number: int) -> Any:
    """How many ranks a process set has, as a graph is executed."""
    if _executing_eagerly():
        return len(_lib.process_sets()[number])
    return size_op(number)


def _own_rank() -> Any:
    """This rank, as a graph is executed: it may be another one than when the graph was made."""
    return rank() if _executing_eagerly() else rank_op()


# --- allreduce ---


def _allreduce(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The reduction of the ranks' tensors."""
    tensor = tf.convert_to_tensor(tensor)
    return _allreduce_in(
        number_of(process_set), tensor, name, op, prescale_factor, postscale_factor, ignore_name_scope
    )


def _allreduce_in(number, tensor, name=None, op=Sum, prescale=1.0, postscale=1.0, ignore_name_scope=False):
    if not _executing_eagerly() and is_in_xla(tf.compat.v1.get_default_graph()):
        return _xla.grouped_allreduce([tensor], name, op, prescale, postscale, number)[0]
    return _run(
        "Allreduce", tensor, name, [tensor],
        ignore_name_scope=ignore_name_scope, process_set_id=number, **_reduction(op, prescale, postscale),
    )  # fmt: skip


def _factors(op: tf.Operation) -> Tuple[float, float]:
    """prescale_factor and postscale_factor of a node."""

    def factor(name: str) -> float:
        bits = op.get_attr(name + "_bits")
        return struct.unpack("<d", struct.pack("<q", bits))[0] if bits else op.get_attr(name + "_factor")

    return factor("prescale"), factor("postscale")


@tf.RegisterGradient("HorovodAllreduce")
def _allreduce_grad(op: tf.Operation, grad: Any) -> Any:
    return _allreduce_in(
        op.get_attr("process_set_id"), grad, None, op.get_attr("reduce_op"), *_factors(op),
        op.get_attr("ignore_name_scope"),
    )  # fmt: skip


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """The reductions of several tensors, of any types, all together or none."""
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    return _grouped_allreduce_in(
        number_of(process_set), tensors, name, op, prescale_factor, postscale_factor, ignore_name_scope
    )


def _grouped_allreduce_in(number, tensors, name=None, op=Sum, prescale=1.0, postscale=1.0, ignore_name_scope=False):
    if not tensors:
        return []
    if not _executing_eagerly() and is_in_xla(tf.compat.v1.get_default_graph()):
        return _xla.grouped_allreduce(tensors, name, op, prescale, postscale, number)
    return list(
        _run(
            "GroupedAllreduce", tensors, name, tensors,
            ignore_name_scope=ignore_name_scope, process_set_id=number, **_reduction(op, prescale, postscale),
        )
    )  # fmt: skip


@tf.RegisterGradient("HorovodGroupedAllreduce")
def _grouped_allreduce_grad(op: tf.Operation, *grads: Any) -> List[Any]:
    return _grouped_allreduce_in(
        op.get_attr("process_set_id"), list(grads), None, op.get_attr("reduce_op"), *_factors(op),
        op.get_attr("ignore_name_scope"),
    )  # fmt: skip


# --- allgather ---


def allgather(
    tensor: Any,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The ranks' tensors one after the other along dimension 0, which may differ between ranks.

    The gradient is this rank's rows of the averaged gradients.
    """
    return _allgather_in(number_of(process_set), tf.convert_to_tensor(tensor), name, ignore_name_scope)


def _allgather_in(number, tensor, name=None, ignore_name_scope=False):
    return _run(
        "Allgather", tensor, name, [tensor], ignore_name_scope=ignore_name_scope, process_set_id=number
    )  # fmt: skip


def _own_rows(number: int, grads: Sequence[Any], tensors: Sequence[Any], ignore_name_scope: bool) -> List[Any]:
    """This rank's rows of the gradients of what was gathered; `tensors` are those that it gave."""
    own = tf.stack([_own_rank(), *(tf.shape(tensor)[0] for tensor in tensors)])
    all_ranks = _allgather_in(number, own[tf.newaxis], None, ignore_name_scope)
    place = tf.argmax(tf.cast(tf.equal(all_ranks[:, 0], own[0]), tf.int32), output_type=tf.int32)
    begins = tf.reduce_sum(all_ranks[:place, 1:], 0)
    return [
        tf.ensure_shape(grad[begins[i] : begins[i] + own[i + 1]], tensor.shape)
        for i, (grad, tensor) in enumerate(zip(grads, tensors))
    ]


@tf.RegisterGradient("HorovodAllgather")
def _allgather_grad(op: tf.Operation, grad: Any) -> Any:
    number, ignore_name_scope = op.get_attr("process_set_id"), op.get_attr("ignore_name_scope")
    reduced = _allreduce_in(number, grad, None, Average, ignore_name_scope=ignore_name_scope)
    return _own_rows(number, [reduced], op.inputs, ignore_name_scope)[0]


def grouped_allgather(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """`allgather` of several tensors, all together or none."""
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    if not tensors:
        return []
    return list(
        _run(
            "GroupedAllgather", tensors, name, tensors,
            ignore_name_scope=ignore_name_scope, process_set_id=number_of(process_set),
        )
    )  # fmt: skip


@tf.RegisterGradient("HorovodGroupedAllgather")
def _grouped_allgather_grad(op: tf.Operation, *grads: Any) -> List[Any]:
    number, ignore_name_scope = op.get_attr("process_set_id"), op.get_attr("ignore_name_scope")
    reduced = _grouped_allreduce_in(number, list(grads), None, Average, ignore_name_scope=ignore_name_scope)
    return _own_rows(number, reduced, op.inputs, ignore_name_scope)


# --- broadcast ---


def broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's tensor, on every rank. The gradient is the averaged one on the root, zeros elsewhere."""
    tensor = tf.convert_to_tensor(tensor)
    if not _executing_eagerly() and is_in_xla(tf.compat.v1.get_default_graph()):
        return _xla.broadcast(tensor, root_rank, name, number_of(process_set))
    return _run(
        "Broadcast", tensor, name, [tensor],
        root_rank=root_rank, ignore_name_scope=ignore_name_scope, process_set_id=number_of(process_set),
    )  # fmt: skip


@tf.RegisterGradient("HorovodBroadcast")
def _broadcast_grad(op: tf.Operation, grad: Any) -> Any:
    number = op.get_attr("process_set_id")
    reduced = _allreduce_in(number, grad, None, Average, ignore_name_scope=op.get_attr("ignore_name_scope"))
    return reduced * tf.cast(tf.equal(_own_rank(), op.get_attr("root_rank")), reduced.dtype)


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """Gives variables the root's values, in place. Returns them; in a graph, what they hold when it is done."""
    result = []
    for i, variable in enumerate(variables):
        variable = variable_of(variable)
        label = None if name is None else f"{name}_{i}"
        if label is None and not _executing_eagerly():
            label = "HorovodBroadcast_" + name_of(variable)  # whatever the operation that reads it is called
        value = broadcast(variable, root_rank, label, process_set=process_set)
        assigned = variable.assign(value)
        result.append(variable if _executing_eagerly() else assigned)
    return result


# --- alltoall ---


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Union[Any, Tuple[Any, Any]]:
    """The rows that all ranks have for this one, in the order of the ranks.

    Args:
        tensor: of at least one dimension; dimension 0 may differ between ranks.
        splits: int32, how many rows go to each rank, the first ones to rank 0. Without it every rank gets an even share.

    Returns:
        The rows; with `splits` given also an int32 tensor of how many rows came from each rank.
    """
    tensor = tf.convert_to_tensor(tensor)
    given = tf.convert_to_tensor([] if splits is None else splits, dtype=tf.int32)
    output, received = _alltoall_in(number_of(process_set), tensor, given, name, ignore_name_scope)
    return output if splits is None else (output, received)


def _alltoall_in(number, tensor, splits, name=None, ignore_name_scope=False):
    return _run(
        "Alltoall", tensor, name, [tensor], splits, ignore_name_scope=ignore_name_scope, process_set_id=number
    )  # fmt: skip


@tf.RegisterGradient("HorovodAlltoall")
def _alltoall_grad(op: tf.Operation, grad: Any, _: Any) -> List[Any]:
    back, _ = _alltoall_in(
        op.get_attr("process_set_id"), grad, op.outputs[1], None, op.get_attr("ignore_name_scope")
    )
    tensor = op.inputs[0]
    missing = tf.shape(tensor)[0] - tf.shape(back)[0]  # rows that were sent to nobody
    zeros = tf.zeros(tf.concat([[missing], tf.shape(tensor)[1:]], 0), back.dtype)
    return [tf.ensure_shape(tf.concat([back, zeros], 0), tensor.shape), None]


# --- reducescatter ---


def _reducescatter(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's rows of the reduction."""
    tensor = tf.convert_to_tensor(tensor)
    return _run(
        "Reducescatter", tensor, name, [tensor],
        ignore_name_scope=ignore_name_scope, process_set_id=number_of(process_set),
        **_reduction(op, prescale_factor, postscale_factor),
    )  # fmt: skip


def _times(grad: Any, op: tf.Operation) -> Any:
    """A gradient of a reducescatter, scaled as Horovod does: as if the loss were the mean of the ranks'."""
    prescale, postscale = _factors(op)
    factor = tf.cast(prescale * postscale, grad.dtype)
    if op.get_attr("reduce_op") == Sum:
        factor = factor * tf.cast(_set_size(op.get_attr("process_set_id")), grad.dtype)
    return grad * factor


@tf.RegisterGradient("HorovodReducescatter")
def _reducescatter_grad(op: tf.Operation, grad: Any) -> Any:
    back = _allgather_in(op.get_attr("process_set_id"), _times(grad, op), None, op.get_attr("ignore_name_scope"))
    return tf.ensure_shape(back, op.inputs[0].shape)


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[Any]:
    """`_reducescatter` of several tensors, all together or none."""
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    if not tensors:
        return []
    return list(
        _run(
            "GroupedReducescatter", tensors, name, tensors,
            ignore_name_scope=ignore_name_scope, process_set_id=number_of(process_set),
            **_reduction(op, prescale_factor, postscale_factor),
        )
    )  # fmt: skip


@tf.RegisterGradient("HorovodGroupedReducescatter")
def _grouped_reducescatter_grad(op: tf.Operation, *grads: Any) -> List[Any]:
    back = _run(
        "GroupedAllgather", [_times(grad, op) for grad in grads], None, list(grads),
        ignore_name_scope=op.get_attr("ignore_name_scope"), process_set_id=op.get_attr("process_set_id"),
    )  # fmt: skip
    return [tf.ensure_shape(grad, tensor.shape) for grad, tensor in zip(back, op.inputs)]


# --- join, barrier, numbers ---


def _join_now() -> int:
    """Waits until every rank has joined; returns the one that did so last."""
    plan = _lib.Plan(_lib.JOIN, _lib.UINT8, (), None)
    status = _wait.call(plan.execute_for_result, 0, 0)
    try:
        if status:
            raise HorovodInternalError(_lib.last_error(), status)
        return ctypes.c_int32.from_address(_lib.result(plan.handle.value).data).value
    finally:
        if plan.handle.value:
            _lib.release(plan.handle.value)


def join() -> Any:
    """This rank has no more data: waits until every rank has called it; an int32 tensor of the rank that did so last.

    Meanwhile this rank takes part in the others' allreduces with zeros; an average is over all ranks as ever. In a graph it
    is a node, which a script runs when this rank's steps are over. In a tf.function it comes after all that is before it. Not in
    functions that XLA compiles.

    Raises:
        HorovodInternalError: a rank is gone; within a graph it is a tf.errors.UnknownError.
        RuntimeError: it is called in a loop, a condition or a function within a tf.function, where it cannot wait for what is
            outside.
    """
    if _executing_eagerly():
        return tf.constant(_join_now(), tf.int32)
    graph = tf.compat.v1.get_default_graph()
    if is_in_xla(graph):
        raise _xla.not_compiled("join")
    if getattr(getattr(graph, "outer_graph", None), "building_function", False):
        raise RuntimeError(
            "hvd.join() within a loop, a condition or another function of a tf.function could not wait for the collectives outside "
            "of it; call it in the function itself, or after it"
        )
    # A tf.function runs all of its nodes that do something, and this one has to be the last. Loops and calls of functions that have
    # collectives in them are stateful as these are. A session runs what it is told.
    before = [op for op in graph.get_operations() if op.op_def.is_stateful] if graph.building_function else []
    with tf.control_dependencies(before):
        last = tf.numpy_function(lambda: np.int32(_join_now()), [], tf.int32, name="HorovodJoin")
    return tf.ensure_shape(last, [])


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns once every rank has called it. Not within graphs."""
    plan = _lib.Plan(_lib.BARRIER, _lib.UINT8, (), None, process_set=number_of(process_set))
    _lib.check(_wait.call(plan.execute, 0, 0))


def size_op(process_set_id: int = 0, name: Optional[str] = None) -> Any:
    """How many ranks the set has when the graph is executed, also after ranks have met anew; int32."""
    return _operations.horovod_size(process_set_id=process_set_id, name=name)


def process_set_included_op(process_set_id: int = 0, name: Optional[str] = None) -> Any:
    """1 if this rank is in the set when the graph is executed, else 0; int32."""
    return _operations.horovod_process_set_included(process_set_id=process_set_id, name=name)


def local_size_op(name: Optional[str] = None) -> Any:
    """How many ranks are on this node when the graph is executed; int32."""
    return _operations.horovod_local_size(name=name)


def rank_op(name: Optional[str] = None) -> Any:
    """This rank when the graph is executed; int32."""
    return _operations.horovod_rank(name=name)


def local_rank_op(name: Optional[str] = None) -> Any:
    """This rank among those of its node when the graph is executed; int32."""
    return _operations.horovod_local_rank(name=name)


for _name in ("HorovodSize", "HorovodProcessSetIncluded", "HorovodLocalSize", "HorovodRank", "HorovodLocalRank"):
    tf.no_gradient(_name)
