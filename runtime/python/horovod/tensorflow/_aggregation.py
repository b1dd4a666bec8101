"""Gradients of several passes, added up on this rank before they are reduced (backward_passes_per_step)."""

import weakref
from typing import Any, Callable, List, Optional, Sequence

import tensorflow as tf

from horovod.tensorflow._reduce import reduce_common
from horovod.tensorflow.util import key_of


_there: "weakref.WeakSet[Any]" = weakref.WeakSet()


def is_counted(owner: Any) -> None:
    """`owner.counter`, a variable or None, is a number of passes that count_anew() sets to 0."""
    _there.add(owner)


def count_anew(session: Any = None) -> None:
    """Forgets the passes that this process has summed up, so that all ranks of a new generation count alike. `session`: of graphs of
    TensorFlow 1, where one is in use."""
    for owner in list(_there):
        counter = owner.counter
        graph = getattr(counter, "graph", None)  # a variable outside of graphs has none
        if counter is not None and graph is None and tf.executing_eagerly():
            counter.assign(0)
        elif session is not None and graph is session.graph:
            counter.load(0, session)


class LocalAggregation:
    """Sums gradients in variables, and reduces them at every n-th call; works in graphs and outside.

    The counter says how many passes are in the sums. It is 0 again as soon as they are reduced, and not when they are
    applied, because a LossScaleOptimizer skips that when they are not finite.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., List[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
    ) -> None:
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = backward_passes_per_step
        self._allreduce = allreduce_func
        self._sparse_as_dense = sparse_as_dense
        self._average = average_aggregated_gradients
        self.counter: Optional[tf.Variable] = None
        self._sums: dict = {}
        self._local: set = set()
        self.local_vars = self._local
        is_counted(self)

    def register_local_var(self, variable: Any) -> None:
        """A variable whose gradients are summed, but not reduced."""
        self._local.add(key_of(variable))

    def _make_variables(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        # The variables are made outside of the function that is being traced. In TensorFlow 1 they are local ones: neither is in a
        # checkpoint, which a run without them could not restore, nor are one rank's sums broadcast to all.
        local = {"trainable": False, "collections": [tf.compat.v1.GraphKeys.LOCAL_VARIABLES], "use_resource": True}
        with tf.init_scope():
            if self.counter is None:
                self.counter = tf.compat.v1.Variable(0, dtype=tf.int32, name="aggregation_counter", **local)
            for gradient, variable in zip(gradients, variables):
                if gradient is not None and key_of(variable) not in self._sums:
                    self._sums[key_of(variable)] = tf.compat.v1.Variable(
                        tf.zeros(variable.shape, gradient.dtype), name="aggregated_gradient", **local
                    )

    def _passes_done(self) -> Any:
        """How many passes are in the sums. In a graph of TensorFlow 1 nobody may have initialised the variables: Keras does not know
        them, and not each script initialises its local ones."""
        if tf.compat.v1.executing_eagerly_outside_functions():
            return self.counter.read_value()
        is_there = tf.compat.v1.is_variable_initialized(self.counter)
        return tf.cond(is_there, self.counter.read_value, lambda: tf.constant(0))

    def compute_gradients(self, gradients: Sequence[Any], variables: Sequence[Any]) -> List[Any]:
        """What to apply: the reduced sums at every n-th call, zeros otherwise. So whoever looks whether they are finite finds
        the same on all ranks."""
        for gradient in gradients:
            if isinstance(gradient, tf.IndexedSlices) and not self._sparse_as_dense:
                raise ValueError(
                    "IndexedSlices are not supported when backward_passes_per_step > 1; use sparse_as_dense=True"
                )
        dense = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in gradients]
        self._make_variables(dense, variables)
        there = [i for i, gradient in enumerate(dense) if gradient is not None]
        sums = [self._sums[key_of(variables[i])] for i in there]
        done = self._passes_done()
        totals = tf.cond(
            tf.equal(done, 0),
            lambda: [tf.identity(dense[i]) for i in there],
            lambda: [total + dense[i] for i, total in zip(there, sums)],
        )
        totals = totals if isinstance(totals, (list, tuple)) else [totals]
        added = [total.assign(value) for total, value in zip(sums, totals)]
        with tf.control_dependencies([tf.convert_to_tensor(value) for value in added]):
            count = self.counter.assign(done + 1)
        with tf.control_dependencies([tf.convert_to_tensor(count)]):
            values = [tf.identity(value) for value in totals]
            is_full = tf.greater_equal(done + 1, self.backward_passes_per_step)

        def full() -> List[Any]:
            reduced = self._reduced(values, [variables[i] for i in there])
            with tf.control_dependencies([*reduced, is_full]):
                begun_anew = tf.convert_to_tensor(self.counter.assign(0))
            with tf.control_dependencies([begun_anew]):
                return [tf.identity(value) for value in reduced]

        result = tf.cond(is_full, full, lambda: [tf.zeros_like(value) for value in values])
        result = result if isinstance(result, (list, tuple)) else [result]
        results: List[Any] = [None] * len(dense)
        for i, value in zip(there, result):
            results[i] = value
        return results

    def _reduced(self, values: List[Any], variables: List[Any]) -> List[Any]:
        results = reduce_common(self._allreduce, values, variables, self._local)
        if self._average:
            results = [value / tf.cast(self.backward_passes_per_step, value.dtype) for value in results]
        return [tf.convert_to_tensor(value) for value in results]

    def apply_gradients(self, apply: Callable[[], Any], steps: Any, *dependencies: Any) -> Any:
        """Calls `apply` after every n-th compute_gradients(). `steps`, the variable that counts the calls of apply_gradients,
        or None, grows in the others too, as with Horovod: what a script plans by it counts batches."""

        def apply_now() -> Any:
            done = apply()
            with tf.control_dependencies([done] if isinstance(done, (tf.Operation, tf.Tensor)) else []):
                return tf.constant(True)

        def count() -> Any:
            counted = [] if steps is None else [tf.convert_to_tensor(steps.assign_add(1))]
            with tf.control_dependencies(counted):
                return tf.constant(False)

        with tf.control_dependencies([d for d in dependencies if isinstance(d, (tf.Operation, tf.Tensor))]):
            has_reduced = tf.equal(tf.identity(self.counter), 0)
        return tf.cond(has_reduced, apply_now, count)
