"""hvd.allreduce and hvd.reducescatter with compression and IndexedSlices; the reduction of all gradients of a model."""

import warnings
from typing import Any, Callable, List, Optional, Sequence, Set, Union

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.mpi_ops import (
    Adasum,
    Average,
    Sum,
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    allgather,
    handle_average_backwards_compatibility,
    size_op,
)
from horovod.tensorflow.util import _executing_eagerly, is_in_xla, key_of, name_of

Groups = Union[None, int, List[List[Any]]]


def _set_size(process_set: ProcessSet) -> Any:
    """How many ranks there are when it is executed: a graph may outlive them. A program of XLA is compiled for those there are."""
    if _executing_eagerly() or is_in_xla(tf.compat.v1.get_default_graph()):
        return process_set.size()
    return size_op(process_set.process_set_id)


def _with_each_row_once(slices: tf.IndexedSlices) -> tf.IndexedSlices:
    """The same, with the sum of what an index has several times: a batch's words, say, of which most come again."""
    indices, places = tf.unique(slices.indices)
    values = tf.math.unsorted_segment_sum(slices.values, places, tf.size(indices))
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def _sparse_allreduce(slices, op, prescale_factor, postscale_factor, name, process_set, ignore_name_scope):
    """Two allgathers: an index that several ranks have is then there several times, which stands for the sum. Dense where XLA
    compiles."""
    if op not in (Average, Sum):
        raise NotImplementedError(
            "IndexedSlices are reduced by Average or Sum only; sparse_as_dense=True makes them dense before"
        )
    if not _executing_eagerly() and is_in_xla(tf.compat.v1.get_default_graph()):
        # The number of rows of all ranks together is not known when XLA compiles.
        dense = tf.convert_to_tensor(slices)
        return _allreduce(
            dense, name, op, prescale_factor, postscale_factor, ignore_name_scope=ignore_name_scope, process_set=process_set
        )
    own = _with_each_row_once(slices)
    values = own.values if prescale_factor == 1.0 else own.values * prescale_factor
    options = {"ignore_name_scope": ignore_name_scope, "process_set": process_set}
    values = allgather(values, None if name is None else name + ".values", **options)
    indices = allgather(own.indices, None if name is None else name + ".indices", **options)
    if op == Average:
        values = values / tf.cast(_set_size(process_set), values.dtype)
    if postscale_factor != 1.0:
        values = values * postscale_factor
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """The reduction of the ranks' tensors, on every rank.

    Args:
        tensor: a tensor, variable or what makes one; IndexedSlices give IndexedSlices.
        average: deprecated; use `op`.
        device_dense, device_sparse: accepted for scripts that pass them; tensors are reduced in the host's memory.
        compression: hvd.Compression.none, .fp16 or .bf16.
        op: hvd.Average (the default), Sum, Min, Max, Product or Adasum.
        prescale_factor, postscale_factor: the tensor is multiplied by it before, the result after the reduction.
        name: the same on every rank; without one, graphs take their node's and other calls are counted.
        ignore_name_scope: the name does not have the scopes around it.

    Raises:
        tf.errors.FailedPreconditionError: ranks disagree; on every rank.
        tf.errors.UnknownError: a rank is gone, or the job was not joined.
        tf.errors.InvalidArgumentError, ValueError: an argument is wrong.
    """
    op = handle_average_backwards_compatibility(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        return _sparse_allreduce(tensor, op, prescale_factor, postscale_factor, name, process_set, ignore_name_scope)
    tensor = tf.convert_to_tensor(tensor)
    sent, context = compression.compress(tensor)
    received = _allreduce(
        sent,
        name=name,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set=process_set,
    )
    return compression.decompress(received, context)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: Optional[str] = None,
) -> List[Any]:
    """`allreduce` of each tensor of a list, of any types, all together or none; IndexedSlices go by themselves."""
    op = handle_average_backwards_compatibility(op, average)
    results: List[Any] = list(tensors)
    dense = []
    for i, tensor in enumerate(results):
        if isinstance(tensor, tf.IndexedSlices):
            results[i] = _sparse_allreduce(
                tensor, op, prescale_factor, postscale_factor, None if name is None else f"{name}_{i}", process_set, ignore_name_scope
            )
        else:
            dense.append(i)
    pairs = [compression.compress(tf.convert_to_tensor(results[i])) for i in dense]
    received = _grouped_allreduce(
        [sent for sent, _ in pairs],
        name=name,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set=process_set,
    )
    for i, (_, context), tensor in zip(dense, pairs, received):
        results[i] = compression.decompress(tensor, context)
    return results


def keras_allreduce(
    tensors: Sequence[Any],
    names: Sequence[str],
    op: int,
    compression: Any,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    sparse_as_dense: bool = False,
) -> List[Any]:
    """`grouped_allreduce` as horovod.common._keras_optimizer calls it. The group has the first of `names`."""
    if sparse_as_dense:
        tensors = [tf.convert_to_tensor(t) if isinstance(t, tf.IndexedSlices) else t for t in tensors]
    results = grouped_allreduce(
        list(tensors),
        op=op,
        compression=compression,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
        name="keras" + names[0],
    )
    # Keras 3's optimizers square and clip what each entry has, so that an index must be there once.
    return [_with_each_row_once(r) if isinstance(r, tf.IndexedSlices) else r for r in results]


def _check_scatter(op: int) -> None:
    if op not in (Average, Sum):
        raise NotImplementedError("hvd.reducescatter takes op=hvd.Average or hvd.Sum")


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """The reduction, of which each rank gets its rows: an even share of dimension 0; what remains makes the lowest ranks'
    shares one row longer."""
    _check_scatter(op)
    sent, context = compression.compress(tf.convert_to_tensor(tensor))
    received = _reducescatter(
        sent,
        name=name,
        op=op,
        ignore_name_scope=ignore_name_scope,
        process_set=process_set,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )
    return compression.decompress(received, context)


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
) -> List[Any]:
    """`reducescatter` of each tensor of a list, all together or none."""
    _check_scatter(op)
    pairs = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
    received = _grouped_reducescatter(
        [sent for sent, _ in pairs],
        name=name,
        op=op,
        process_set=process_set,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )
    return [compression.decompress(tensor, context) for tensor, (_, context) in zip(received, pairs)]


def check_arguments(op: int, gradient_predivide_factor: float, num_groups: int, groups: Groups) -> Groups:
    """The groups that `num_groups` and `groups` mean. ValueError for what optimizers and tapes do not take."""
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups:
        warnings.warn("Parameter `num_groups` has been replaced by `groups`", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    if groups is None or (isinstance(groups, int) and not isinstance(groups, bool) and groups >= 0):
        return groups or None
    if not isinstance(groups, (list, tuple)) or not all(isinstance(group, (list, tuple)) for group in groups):
        raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable.")
    return [list(group) for group in groups]


def _groups_of(groups: Groups, count: int, variables: Optional[Sequence[Any]]) -> List[List[int]]:
    """Which of `count` gradients go together."""
    if isinstance(groups, int):
        return [list(part) for part in split_list(list(range(count)), groups)]
    if groups is None or variables is None:
        return [[i] for i in range(count)]
    place = {key_of(variable): i for i, variable in enumerate(variables)}
    result, seen = [], set()
    for group in groups:
        members = [place[key_of(v)] for v in group if key_of(v) in place and place[key_of(v)] not in seen]
        seen.update(members)
        if members:
            result.append(members)
    return result + [[i] for i in range(count) if i not in seen]


def make_allreduce_grads(
    name: str,
    compression: Any,
    sparse_as_dense: bool,
    op: int,
    gradient_predivide_factor: float,
    groups: Groups,
    process_set: ProcessSet,
    by_position: bool = False,
) -> Callable[..., List[Any]]:
    """A function that reduces the gradients of a model, `None`s among them: (gradients, variables=None,
    use_generic_names=False). `by_position`: in a graph they have numbers, and not their variables' names."""
    reduce_op, prescale, postscale = op, 1.0, 1.0

    def reduce_some(gradients: List[Any], label: str, generic: bool, is_group: bool) -> List[Any]:
        options = {
            "compression": compression,
            "op": reduce_op,
            "prescale_factor": prescale / gradient_predivide_factor,  # a part of the division is done before the sum
            "postscale_factor": postscale * gradient_predivide_factor,
            "process_set": process_set,
            "ignore_name_scope": generic,
        }
        in_graph = label if not _executing_eagerly() else None
        if is_group:
            return grouped_allreduce(gradients, name=in_graph, **options)
        return [allreduce(gradients[0], name=in_graph, **options)]

    def allreduce_grads(
        gradients: Sequence[Any], variables: Optional[Sequence[Any]] = None, use_generic_names: bool = False
    ) -> List[Any]:
        if not process_set.takes_part():  # ranks that are not of the set keep their own
            return list(gradients)
        results = list(gradients)
        with tf.name_scope(name + "_Allreduce"):
            if sparse_as_dense:
                results = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in results]
            there = [i for i, gradient in enumerate(results) if gradient is not None]
            owners = None if variables is None else [variables[i] for i in there]
            for number, group in enumerate(_groups_of(groups, len(there), owners)):
                places = [there[i] for i in group]
                is_group = groups is not None and len(places) > 1
                if use_generic_names:
                    label = f"{'group' if is_group else 'grad'}_{number if is_group else places[0]}"
                elif is_group or variables is None or by_position:
                    label = f"{'Group' if is_group else 'Grad'}_{number if is_group else places[0]}"
                else:
                    label = "Grad_" + name_of(variables[places[0]])
                reduced = reduce_some([results[i] for i in places], label, use_generic_names, is_group)
                for i, gradient in zip(places, reduced):
                    results[i] = gradient
        return results

    return allreduce_grads


def _make_allreduce_grads_fn(
    name: str,
    device_dense: str,
    device_sparse: str,
    compression: Any,
    sparse_as_dense: bool,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[..., List[Any]]:
    """make_allreduce_grads() under the name by which programs' own optimizers use it. The devices have no effect."""
    groups = check_arguments(op, gradient_predivide_factor, 0, groups)
    return make_allreduce_grads(name, compression, sparse_as_dense, op, gradient_predivide_factor, groups, process_set)


def scale_local(gradient: Any, by: Any) -> Any:
    """A local variable's gradient, divided by a number, or by that of a process set's ranks."""
    size = _set_size(by) if isinstance(by, ProcessSet) else by
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values / tf.cast(size, gradient.values.dtype)
        return tf.IndexedSlices(values, gradient.indices, dense_shape=gradient.dense_shape)
    return gradient / tf.cast(size, gradient.dtype)


def scale_locals(gradients: Sequence[Any], variables: Sequence[Any], local: Set[int], by: Any) -> List[Any]:
    """The same for those among gradients whose variables are local: `local` has their keys."""
    pairs = zip(gradients, variables)
    return [scale_local(g, by) if g is not None and key_of(v) in local else g for g, v in pairs]


def reduce_common(
    reduce: Callable[..., List[Any]], gradients: Sequence[Any], variables: Sequence[Any], local: Set[int], *more: Any
) -> List[Any]:
    """Gradients, of which `reduce` has reduced those whose variables are not local."""
    common = [i for i, variable in enumerate(variables) if key_of(variable) not in local]
    results = list(gradients)
    reduced = reduce([gradients[i] for i in common], [variables[i] for i in common], *more)
    for i, gradient in zip(common, reduced):
        results[i] = gradient
    return results


__all__ = ["Adasum", "allreduce", "grouped_allreduce", "grouped_reducescatter", "reducescatter"]
