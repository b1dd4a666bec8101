"""DistributedGradientTape and PartialDistributedGradientTape."""

from typing import Any, List, Optional, Tuple

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._reduce import Groups, check_arguments, make_allreduce_grads, reduce_common, scale_locals
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.mpi_ops import Average
from horovod.tensorflow.util import key_of


class _DistributedGradientTape(tf.GradientTape):
    """Mixed into the class of a given tape, whose state it takes over."""

    def _set_up(self, name, compression, sparse_as_dense, op, predivide, groups, process_set, scale_local_gradients):
        self._allreduce_grads = make_allreduce_grads(
            name, compression, sparse_as_dense, op, predivide, groups, process_set
        )
        self._process_set = process_set
        self._scale_local_gradients = scale_local_gradients
        self._local_sources: set = set()

    def register_local_source(self, source: Any) -> None:
        """A variable whose gradient is not reduced, but stays this rank's own, divided by the number of ranks
        (scale_local_gradients)."""
        self._local_sources.add(key_of(source))

    def _reduce(self, gradients: List[Any], sources: List[Any], use_generic_names: bool) -> List[Any]:
        results = reduce_common(self._allreduce_grads, gradients, sources, self._local_sources, use_generic_names)
        if self._scale_local_gradients and self._process_set.takes_part():
            results = scale_locals(results, sources, self._local_sources, self._process_set)
        return results

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """As tf.GradientTape.gradient, reduced over the ranks.

        use_generic_names: tensors are called grad_0 and so on, whatever the variables are called on each rank.
        """
        gradients = super().gradient(target, sources, output_gradients, unconnected_gradients)
        flat = tf.nest.flatten(gradients)
        if len(flat) != len(tf.nest.flatten(sources)):  # a gradient is itself a structure (a composite tensor)
            raise ValueError("DistributedGradientTape takes sources that are variables or plain tensors")
        reduced = self._reduce(flat, tf.nest.flatten(sources), use_generic_names)
        return tf.nest.pack_sequence_as(gradients, reduced) if flat else gradients

    def get_local_and_global_gradients(
        self, target: Any, sources: List[Any], output_gradients: Any = None, use_generic_names: bool = False
    ) -> Tuple[List[Tuple[Any, Any]], List[Tuple[Any, Any]]]:
        """What `gradient` gives for a list of sources, as pairs of a source and its gradient: the local ones, and the others."""
        local, common = [], []
        for source, gradient in zip(sources, self.gradient(target, sources, output_gradients, use_generic_names)):
            (local if key_of(source) in self._local_sources else common).append((source, gradient))
        return local, common


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """A tape of the same kind, with what the given one has recorded, whose `gradient` is reduced over the ranks.

    Args:
        gradtape: a tf.GradientTape.
        device_dense, device_sparse: accepted for scripts that pass them.
        compression: hvd.Compression.none, .fp16 or .bf16.
        sparse_as_dense: IndexedSlices become dense before.
        op: hvd.Average, Sum, or Adasum.
        gradient_predivide_factor: of an average, what is divided by before the sum, and the rest after.
        num_groups, groups: how many groups of gradients are reduced, or lists of variables that go together; without, each
            gradient as soon as it is there.
        scale_local_gradients: gradients of local variables (register_local_source) are divided by the number of ranks.
    """
    groups = check_arguments(op, gradient_predivide_factor, num_groups, groups)
    kind = type(gradtape)
    tape = object.__new__(type(kind.__name__, (_DistributedGradientTape, kind), {}))
    tape.__dict__.update(gradtape.__dict__)
    tape._recording = False  # if the given tape still records, it alone ends that: what both have underneath ends once
    tape._set_up(
        "DistributedGradientTape",
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        groups,
        process_set,
        scale_local_gradients,
    )
    return tape


def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Optional[Any] = None,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """`DistributedGradientTape` that leaves the variables of some layers local.

    local_layers: a layer or several, already built.
    """
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for variable in local_variables_of(local_layers):
        tape.register_local_source(variable)
    return tape


def local_variables_of(local_layers: Any) -> List[Any]:
    """The trainable variables of a layer or several. ValueError for what is none."""
    if local_layers is None:
        return []
    layers = local_layers if isinstance(local_layers, (list, tuple, set)) else [local_layers]
    for layer in layers:
        if not hasattr(layer, "trainable_weights"):
            raise ValueError(f"All local layers must be of tf.keras.layers.Layer type; {type(layer).__name__} is none")
    return [variable for layer in layers for variable in layer.trainable_weights]
