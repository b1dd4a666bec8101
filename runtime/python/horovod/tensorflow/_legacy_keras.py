"""DistributedOptimizer for legacy Keras (tf-keras, TF_USE_LEGACY_KERAS=1), its older optimizers among them."""

import inspect
import sys
from typing import Any, Callable, List, Optional, Sequence

import tensorflow as tf

from horovod.common import _optimizer_makers
from horovod.common._registered import save_as
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._aggregation import LocalAggregation
from horovod.tensorflow._reduce import Groups, check_arguments, make_allreduce_grads, reduce_common, scale_locals
from horovod.tensorflow._tape import local_variables_of
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.mpi_ops import Average, Sum
from horovod.tensorflow.util import key_of


class _Settings:
    """What DistributedOptimizer was asked for."""

    def __init__(self, reduce, passes, sparse_as_dense, average, process_set, scale_local_gradients, local_variables):
        self.reduce = reduce
        self.passes = passes
        self.sparse_as_dense = sparse_as_dense
        self.average = average
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self.local_variables = list(local_variables)


class _Distributed:
    """What the subclass has before the optimizer's own class. Gradients are reduced where they are computed; those that come from
    elsewhere, where Keras aggregates them or, at last, where they are applied.

    A LossScaleOptimizer around this one has its gradients aggregated, then looks whether they are finite, and then has them
    applied as already aggregated. So all ranks find the same, skip the same steps and have the same scale.
    """

    _hvd: _Settings
    # The reduction of a list of gradients: (gradients, variables=None, use_generic_names=False). Programs for model-parallel layers
    # put their own in the place of this one, or of _allreduce(), on one optimizer; so both are looked up on it at each step.
    _allreduce_grads: Callable[..., List[Any]]
    # Whether compute_gradients has reduced what is aggregated or applied next.
    _hvd_has_reduced = False

    def _allreduce(self, gradients: Sequence[Any], variables: Optional[Sequence[Any]] = None) -> List[Any]:
        """The gradients of a step, reduced over the ranks but for those of local variables. Without variables, as programs for
        older releases of Horovod call it, all are reduced at once."""
        if variables is None:
            return self._allreduce_grads(list(gradients))
        settings = self._hvd
        local = {key_of(variable) for variable in settings.local_variables}
        if settings.passes > 1:
            if getattr(self, "_agg_helper", None) is None:
                helper = LocalAggregation(
                    settings.passes, lambda *words: self._allreduce_grads(*words), settings.sparse_as_dense, settings.average
                )
                object.__setattr__(self, "_agg_helper", helper)
            for variable in settings.local_variables:
                self._agg_helper.register_local_var(variable)
            results = self._agg_helper.compute_gradients(gradients, variables)
        else:
            results = reduce_common(self._allreduce_grads, gradients, variables, local)
        if settings.scale_local_gradients and settings.process_set.takes_part():
            results = scale_locals(results, variables, local, settings.process_set)
        return results

    def _hvd_reduce_pairs(self, pairs: Any) -> List[Any]:
        pairs = list(pairs)
        reduced = self._allreduce([g for g, _ in pairs], [v for _, v in pairs])
        return list(zip(reduced, [v for _, v in pairs]))

    def _hvd_reduce_once(self, pairs: Any) -> List[Any]:
        has_reduced = self._hvd_has_reduced
        object.__setattr__(self, "_hvd_has_reduced", False)
        return list(pairs) if has_reduced else self._hvd_reduce_pairs(pairs)

    def _hvd_computed(self, pairs: Any) -> List[Any]:
        reduced = self._hvd_reduce_pairs(pairs)
        object.__setattr__(self, "_hvd_has_reduced", True)
        return reduced

    def __repr__(self) -> str:
        # TensorFlow Recommenders Addons knows a distributed optimizer by this word. It is not in the class's __module__, which saved
        # models have.
        return f"<horovod._keras.{type(self).__name__} object at {id(self):#x}>"

    @classmethod
    def from_config(cls, *args: Any, **kwargs: Any) -> Any:
        return _marked(super().from_config(*args, **kwargs))

    def compute_gradients(self, *args: Any, **kwargs: Any) -> List[Any]:
        """As the optimizer's, reduced over the ranks."""
        return self._hvd_computed(super().compute_gradients(*args, **kwargs))

    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> List[Any]:
        inherited = getattr(super(), "_compute_gradients", None)
        if inherited is not None:
            return self._hvd_computed(inherited(loss, var_list, grad_loss, tape))
        return self.compute_gradients(loss, var_list, tape)

    def get_gradients(self, loss: Any, params: Any) -> List[Any]:
        """As the older optimizers', reduced over the ranks."""
        return [g for g, _ in self._hvd_computed(zip(super().get_gradients(loss, params), params))]

    def aggregate_gradients(self, grads_and_vars: Any) -> List[Any]:
        """As the optimizer's, reduced over the ranks."""
        return super().aggregate_gradients(self._hvd_reduce_once(grads_and_vars))

    def _aggregate_gradients(self, grads_and_vars: Any) -> List[Any]:
        """As the older optimizers', reduced over the ranks."""
        return super()._aggregate_gradients(self._hvd_reduce_once(grads_and_vars))

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's; with backward_passes_per_step at every n-th call."""
        inherited = super().apply_gradients
        signature = inspect.signature(inherited)
        given = signature.bind_partial(grads_and_vars, *args, **kwargs).arguments
        words = {**given, **given.get("kwargs", {})}
        is_aggregated = words.get("skip_gradients_aggregation") or not words.get("experimental_aggregate_gradients", True)
        pairs = list(grads_and_vars) if is_aggregated else self._hvd_reduce_once(grads_and_vars)
        if "skip_gradients_aggregation" in signature.parameters and "skip_gradients_aggregation" not in given:
            kwargs["skip_gradients_aggregation"] = True

        def apply() -> Any:
            object.__setattr__(self, "_hvd_has_reduced", True)  # where the older optimizers aggregate
            try:
                return inherited(pairs, *args, **kwargs)
            finally:
                object.__setattr__(self, "_hvd_has_reduced", False)

        if getattr(self, "_agg_helper", None) is None:
            return apply()
        build = getattr(self, "build", None)
        if build is not None:  # variables are not to be made within a condition
            with tf.init_scope():
                build([v for _, v in pairs])
        elif hasattr(self, "_create_all_weights"):
            with tf.init_scope():
                self._create_all_weights([v for _, v in pairs])
        steps = getattr(self, "iterations", None)
        return self._agg_helper.apply_gradients(apply, steps, *[g for g, _ in pairs])

    def register_local_var(self, var: Any) -> None:
        """The gradient of this variable is not reduced."""
        self._hvd.local_variables.append(var)


def _marked(optimizer: Any) -> Any:
    """The same object, whose __module__ begins with "horovod". Merlin Models looks for that, and would otherwise distribute an
    optimizer again that a script has distributed."""
    object.__setattr__(optimizer, "__module__", "horovod._keras")
    return optimizer


def _wrap(optimizer: Any, settings: _Settings) -> Any:
    """The same object, whose gradients are reduced from now on. The class has the settings, so that what from_config() makes of it
    is distributed too."""
    if isinstance(optimizer, _Distributed):
        raise ValueError("this optimizer is a hvd.DistributedOptimizer already")
    other = sys.modules.get("keras")
    if other is not None and int(other.__version__.partition(".")[0]) >= 3 and isinstance(optimizer, other.optimizers.Optimizer):
        raise ValueError(
            f"hvd.DistributedOptimizer takes an optimizer of legacy Keras here, not {type(optimizer).__name__} of Keras 3; for "
            "Keras 3 leave TF_USE_LEGACY_KERAS out, or import keras before horovod.keras"
        )
    if not hasattr(optimizer, "apply_gradients"):
        raise ValueError(f"hvd.DistributedOptimizer takes an optimizer of Keras, not {type(optimizer).__name__}")
    base = type(optimizer)
    body = {
        "_hvd": settings,
        "_allreduce_grads": staticmethod(settings.reduce),
        "_HAS_AGGREGATE_GRAD": True,
        "__module__": base.__module__,
        "__doc__": base.__doc__,
    }
    kind = type(base.__name__, (_Distributed, base), body)
    save_as(kind, base, tf.keras.utils)
    object.__setattr__(optimizer, "__class__", kind)
    return _marked(optimizer)


def _distributed(optimizer: Any, settings: _Settings) -> Any:
    """The same object, or the LossScaleOptimizer with the same one inside, whose gradients are reduced from now on. These are then
    the scaled ones on each rank, as of the model that load_model() gives to some. Of several passes they are not: they
    would be summed up with different scales."""
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is None or settings.passes > 1:
        return _wrap(optimizer, settings)
    object.__setattr__(optimizer, "register_local_var", _wrap(inner, settings).register_local_var)
    return _marked(optimizer)


def _settings(
    optimizer, name, compression, sparse_as_dense, predivide, op, groups, passes, average, process_set, scale, local
) -> _Settings:
    if op not in (Average, Sum):
        raise ValueError("op: only hvd.Average and hvd.Sum are supported by hvd.DistributedOptimizer for Keras")
    if passes < 1:
        raise ValueError("backward_passes_per_step must be > 0")
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    # By position, because Keras counts layers' names in each process: rank 0 may have loaded a model that the others have made.
    reduce = make_allreduce_grads(
        name or f"Distributed{type(inner).__name__}", compression, sparse_as_dense, op, predivide, groups, process_set,
        by_position=True,
    )  # fmt: skip
    return _Settings(reduce, passes, sparse_as_dense, average, process_set, scale, local)


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """The optimizer itself, whose gradients are reduced over the ranks from now on. Arguments: as those of
    horovod.tensorflow.DistributedOptimizer."""
    groups = check_arguments(op, gradient_predivide_factor, num_groups, groups)
    settings = _settings(
        optimizer, name, compression, sparse_as_dense, gradient_predivide_factor, op, groups, backward_passes_per_step,
        average_aggregated_gradients, process_set, scale_local_gradients, (),
    )  # fmt: skip
    return _distributed(optimizer, settings)


def PartialDistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """`DistributedOptimizer`, but for the layers `local_layers` (one or several), whose gradients each rank keeps to itself."""
    groups = check_arguments(op, gradient_predivide_factor, 0, groups)
    settings = _settings(
        optimizer, name, compression, sparse_as_dense, gradient_predivide_factor, op, groups, backward_passes_per_step,
        average_aggregated_gradients, process_set, scale_local_gradients, local_variables_of(local_layers),
    )  # fmt: skip
    return _distributed(optimizer, settings)


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """A model from a file, whose optimizer is a DistributedOptimizer with the state that was saved."""

    def object_of(config: Any) -> Any:
        try:
            return tf.keras.optimizers.schedules.deserialize(config)
        except ValueError:  # it is something else, which the optimizer's maker gets as it is
            return config

    objects = {cls.__name__: cls for cls in custom_optimizers or ()}
    objects.update(custom_objects or {})
    with _optimizer_makers.called(objects, filepath, object_of, tf.keras.utils.get_custom_objects()) as objects:
        model = tf.keras.models.load_model(filepath, custom_objects=objects)
    optimizer = getattr(model, "optimizer", None)
    # As compile() makes it on ranks that have not loaded the model: the loss is scaled around it, and scaled gradients are reduced.
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if inner is not None and not isinstance(optimizer, _Distributed) and not isinstance(inner, _Distributed):
        DistributedOptimizer(inner, compression=compression)
    return model
