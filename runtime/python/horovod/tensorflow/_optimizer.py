"""DistributedOptimizer: of an optimizer of TensorFlow 1 here, of Keras in _keras.py."""

from typing import Any, List, Optional, Tuple

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._aggregation import LocalAggregation, is_counted
from horovod.tensorflow._reduce import Groups, allreduce, check_arguments, make_allreduce_grads, reduce_common, scale_locals
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.mpi_ops import Adasum, Average
from horovod.tensorflow.util import key_of

_LegacyOptimizer = tf.compat.v1.train.Optimizer


class _DistributedOptimizer(_LegacyOptimizer):
    """An optimizer of TensorFlow 1 whose compute_gradients gives reduced gradients."""

    def __init__(
        self,
        optimizer: Any,
        name: Optional[str],
        use_locking: bool,
        compression: Any,
        sparse_as_dense: bool,
        op: int,
        gradient_predivide_factor: float,
        backward_passes_per_step: int,
        average_aggregated_gradients: bool,
        groups: Groups,
        process_set: ProcessSet,
        scale_local_gradients: bool,
    ) -> None:
        name = name or f"Distributed{type(optimizer).__name__}"
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._process_set = process_set
        self._scale_local_gradients = scale_local_gradients
        self._local_vars: set = set()
        self._allreduce_grads = make_allreduce_grads(
            name, compression, sparse_as_dense, op, gradient_predivide_factor, groups, process_set
        )
        self._agg_helper: Optional[LocalAggregation] = None
        if backward_passes_per_step > 1:
            self._agg_helper = LocalAggregation(
                backward_passes_per_step, self._allreduce_grads, sparse_as_dense, average_aggregated_gradients
            )

    def register_local_var(self, var: Any) -> None:
        """A variable whose gradient is not reduced."""
        self._local_vars.add(key_of(var))
        if self._agg_helper is not None:
            self._agg_helper.register_local_var(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> List[Tuple[Any, Any]]:
        """As the optimizer's, reduced over the ranks."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
        if self._agg_helper is not None:
            reduced = self._agg_helper.compute_gradients(gradients, variables)
        else:
            reduced = reduce_common(self._allreduce_grads, gradients, variables, self._local_vars)
        if self._scale_local_gradients and self._local_vars and self._process_set.takes_part():
            reduced = scale_locals(reduced, variables, self._local_vars, self._process_set)
        return list(zip(reduced, variables))

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's; with backward_passes_per_step at every n-th call."""
        if self._agg_helper is None:
            return self._optimizer.apply_gradients(*args, **kwargs)
        pairs = list(args[0] if args else kwargs["grads_and_vars"])
        global_step = args[1] if len(args) > 1 else kwargs.get("global_step")
        return self._agg_helper.apply_gradients(
            lambda: self._optimizer.apply_gradients(*args, **kwargs), global_step, *[g for g, _ in pairs]
        )

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's, and those in which gradients are added up."""
        own = [] if self._agg_helper is None or self._agg_helper.counter is None else [self._agg_helper.counter]
        return list(self._optimizer.variables(*args, **kwargs)) + own


def _copy_of(variable: Any) -> Any:
    """Its value. A reference variable of TensorFlow 1 gives its own memory, in which the optimizer then steps."""
    value = variable.read_value()
    is_reference = variable.dtype != variable.dtype.base_dtype
    return tf.raw_ops.DeepCopy(x=value) if is_reference else value


class _DistributedAdasumOptimizer(_LegacyOptimizer):
    """An optimizer of TensorFlow 1 that steps by itself, after which the steps are reduced by Adasum."""

    def __init__(
        self, optimizer: Any, name: Optional[str], use_locking: bool, compression: Any, every: int, process_set: ProcessSet
    ) -> None:
        super().__init__(name=name or f"DistributedDelta{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer = optimizer
        self._compression = compression
        self._every = every
        self._process_set = process_set
        self._starts: dict = {}
        self.counter: Optional[tf.Variable] = None  # of the steps since the last reduction
        is_counted(self)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> List[Tuple[Any, Any]]:
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        pairs = [(g, v) for g, v in grads_and_vars if g is not None]
        if not self._process_set.takes_part():
            return self._optimizer.apply_gradients(pairs, global_step, name)
        variables = [v for _, v in pairs]
        with tf.init_scope():
            self.counter = tf.Variable(0, dtype=tf.int32, trainable=False) if self.counter is None else self.counter
            for v in variables:
                if key_of(v) not in self._starts:
                    zeros = tf.zeros(v.shape, v.dtype.base_dtype)
                    self._starts[key_of(v)] = tf.Variable(zeros, trainable=False, name="start_of_step")
        # read_value() everywhere: as an operand, a reference variable of TensorFlow 1 stands for a node that reads it at any time.
        is_first = tf.equal(self.counter.read_value(), 0)
        before = []
        for v in variables:
            start = self._starts[key_of(v)]
            before.append(tf.cond(is_first, lambda s=start, v=v: s.assign(_copy_of(v)), lambda s=start: s.read_value()))
        with tf.control_dependencies([tf.convert_to_tensor(value) for value in before]):
            stepped = self._optimizer.apply_gradients(pairs, global_step)
        with tf.control_dependencies([stepped] if stepped is not None else []):
            count = self.counter.assign_add(1)
        with tf.control_dependencies([tf.convert_to_tensor(count)]):
            return tf.cond(
                tf.equal(self.counter.read_value(), self._every),
                lambda: self._reduce(variables),
                lambda: tf.constant(False),
            )

    def _reduce(self, variables: List[Any]) -> Any:
        done = []
        for i, v in enumerate(variables):
            start = self._starts[key_of(v)].read_value()
            delta = allreduce(
                v.read_value() - start, op=Adasum, compression=self._compression, name=f"{self.get_name()}_delta_{i}",
                process_set=self._process_set,
            )  # fmt: skip
            done.append(tf.convert_to_tensor(v.assign(start + delta)))
        with tf.control_dependencies(done):
            reset = self.counter.assign(0)
        with tf.control_dependencies([tf.convert_to_tensor(reset)]):
            return tf.constant(True)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.variables(*args, **kwargs)


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """The optimizer, with gradients that are reduced over the ranks before they are applied.

    Args:
        optimizer: a tf.compat.v1.train.Optimizer, or one of Keras 3 or legacy Keras.
        name: of the wrapper.
        use_locking: as in TensorFlow.
        device_dense, device_sparse: accepted for scripts that pass them.
        compression: hvd.Compression.none, .fp16 or .bf16.
        sparse_as_dense: IndexedSlices become dense before.
        backward_passes_per_step: how many steps' gradients are added up on each rank before they are reduced and applied.
        op: hvd.Average, Sum or, of an optimizer of TensorFlow 1, Adasum.
        gradient_predivide_factor: of an average, what is divided by before the sum, and the rest after.
        average_aggregated_gradients: the added-up gradients are divided by backward_passes_per_step.
        num_groups, groups: how many groups of gradients are reduced, or lists of variables that go together.
        process_set: the ranks among which gradients are reduced.
        scale_local_gradients: gradients of local variables are divided by the number of ranks.

    Raises:
        ValueError: it is no optimizer, or the arguments do not fit together.
    """
    groups = check_arguments(op, gradient_predivide_factor, num_groups, groups)
    if isinstance(optimizer, _LegacyOptimizer):
        if op == Adasum:
            if average_aggregated_gradients:
                raise ValueError("Adasum does not support average_aggregated_gradients == True")
            return _DistributedAdasumOptimizer(
                optimizer, name, use_locking, compression, backward_passes_per_step, process_set
            )  # fmt: skip
        return _DistributedOptimizer(
            optimizer,
            name,
            use_locking,
            compression,
            sparse_as_dense,
            op,
            gradient_predivide_factor,
            backward_passes_per_step,
            average_aggregated_gradients,
            groups,
            process_set,
            scale_local_gradients,
        )
    if op == Adasum:
        raise ValueError("op == Adasum is not supported yet with Keras")
    from horovod.tensorflow import _keras  # only now, because Keras takes seconds to import

    return _keras.distributed(
        optimizer,
        name,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        groups,
        backward_passes_per_step,
        average_aggregated_gradients,
        process_set,
        scale_local_gradients,
    )
