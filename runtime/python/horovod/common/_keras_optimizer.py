"""DistributedOptimizer for Keras 3: an optimizer whose class becomes a subclass of it that reduces gradients first.

How a backend reduces and scales is an argument (Settings.grouped_allreduce, .scale_local), so that each front brings its own and
imports no other.

Every backend's trainer hands the gradients of a step to one method, `apply` (JAX within `stateless_apply`), before they are
clipped and before weights decay. So it is the one that is extended. The object stays what it was, with its state and
settings; the subclass has the name and the module of the public one, so that a saved file says nothing of Horovod.
"""

from typing import Any, Callable, Iterable, List, Optional, Sequence, Type

import keras

from horovod.common._old_keras import CallableList
from horovod.common._registered import save_as
from horovod.common.process_sets import ProcessSet
from horovod.common.util import split_list

Average, Sum = 0, 1


class Settings:
    """What DistributedOptimizer was asked for.

    `grouped_allreduce` is (tensors, names, op, compression, prescale_factor, postscale_factor, process_set) -> list of
    tensors. It is called where gradients are, in a compiled step on JAX and TensorFlow. `names` has one for each tensor, the
    same on every rank. `scale_local` is (gradient, process_set) -> the gradient, divided by the number of ranks. A step that was
    compiled may outlive a change of that number, which each backend sees in its own way.
    """

    def __init__(
        self,
        grouped_allreduce: Callable[..., List[Any]],
        scale_local: Callable[[Any, ProcessSet], Any],
        op: int,
        compression: Any,
        gradient_predivide_factor: float,
        groups: Any,
        backward_passes_per_step: int,
        average_aggregated_gradients: bool,
        process_set: ProcessSet,
        local_layers: Sequence[Any],
        scale_local_gradients: bool,
        name: str,
    ) -> None:
        if op not in (Average, Sum):
            raise ValueError("op: only hvd.Average and hvd.Sum are supported by hvd.DistributedOptimizer for Keras")
        if gradient_predivide_factor != 1.0 and op != Average:
            raise ValueError("gradient_predivide_factor is for op=hvd.Average only")
        is_number = isinstance(groups, int) and not isinstance(groups, bool) and groups >= 0
        is_lists = isinstance(groups, (list, tuple)) and all(isinstance(group, (list, tuple)) for group in groups)
        if groups is not None and not is_number and not is_lists:
            raise ValueError(
                f"groups={groups!r}: give the number of groups into which the gradients are to be divided, or lists of variables"
            )
        if backward_passes_per_step < 1:
            raise ValueError("backward_passes_per_step must be 1 or more")
        self.grouped_allreduce, self.scale_local = grouped_allreduce, scale_local
        self.op, self.compression, self.groups, self.process_set = op, compression, groups, process_set
        self.prescale, self.postscale = 1.0 / gradient_predivide_factor, gradient_predivide_factor
        self.passes = backward_passes_per_step
        # Keras divides what it has accumulated by the number of passes, which Horovod does on demand only.
        self.factor = 1 if average_aggregated_gradients else backward_passes_per_step
        self.local_layers = list(local_layers)
        self.local_variables: List[Any] = []
        self.scale_local_gradients = scale_local_gradients
        self.name = name

    def local_ids(self) -> set:
        """Of the variables that are not reduced. Asked late, as layers get their variables late."""
        layers = [variable for layer in self.local_layers for variable in layer.trainable_variables]
        return {id(variable) for variable in layers + self.local_variables}


def _parts_of(places: List[int], variables: Sequence[Any], groups: Any) -> List[List[int]]:
    """The places, divided into what is reduced together: so many groups, or the lists of variables and one of all others."""
    if not isinstance(groups, (list, tuple)):
        return split_list(places, groups or 1) if places else []
    parts = []
    for group in groups:
        members = {id(variable) for variable in group}
        parts.append([i for i in places if id(variables[i]) in members])
        places = [i for i in places if id(variables[i]) not in members]
    return [part for part in [*parts, places] if part]


def _is_gradient(gradient: Any, variable: Any) -> bool:
    """Returns False for None, and for a value that a variable is to have."""
    return gradient is not None and not getattr(variable, "overwrite_with_gradient", False)


def _kept(gradient: Any, variable: Any, factor: float) -> Any:
    """Returns a gradient that is not reduced, for the step that Keras makes of it."""
    if factor == 1.0 or not _is_gradient(gradient, variable):
        return gradient
    return keras.ops.multiply(gradient, factor)  # this takes IndexedSlices too


def _reduce(settings: Settings, gradients: Sequence[Any], variables: Sequence[Any], factor: float = 1.0) -> List[Any]:
    """The gradients, reduced; None stays None. Ranks that are not of the process set keep their own."""
    process_set = settings.process_set
    if not process_set.takes_part():
        return [_kept(gradient, variable, factor) for gradient, variable in zip(gradients, variables)]
    results = list(gradients)
    local = settings.local_ids()
    places = []
    for i, (gradient, variable) in enumerate(zip(gradients, variables)):
        if id(variable) in local:
            results[i] = _kept(gradient, variable, factor)
            if settings.scale_local_gradients and _is_gradient(gradient, variable):
                results[i] = settings.scale_local(results[i], process_set)
        elif _is_gradient(gradient, variable):
            places.append(i)
    postscale = settings.postscale * factor
    for part in _parts_of(places, variables, settings.groups):
        received = settings.grouped_allreduce(
            [gradients[i] for i in part],
            # Variables are matched by position, not by path, because Keras counts layers' names in each process.
            [f".{settings.name}.{i}.{getattr(variables[i], 'name', '').rpartition('/')[2]}" for i in part],
            settings.op, settings.compression, settings.prescale, postscale, settings.process_set,
        )  # fmt: skip
        for i, value in zip(part, received):
            results[i] = value
    return results


def _dense(gradient: Any, like: Any) -> Any:
    """Returns the gradient as a tensor. TensorFlow's of an embedding has only the rows that a batch has used."""
    if hasattr(gradient, "dense_shape"):
        return keras.ops.add(keras.ops.zeros_like(like), gradient)  # also where a row is there several times
    return keras.ops.convert_to_tensor(gradient)


def _check_distribution() -> None:
    distribution = getattr(getattr(keras, "distribution", None), "distribution", lambda: None)()
    if distribution is not None:
        raise RuntimeError(
            f"keras.distribution is active ({type(distribution).__name__}), which averages gradients over all processes itself; "
            "use either that, or hvd.DistributedOptimizer (keras.distribution.set_distribution(None) ends it)"
        )


class _Distributed:
    """What the subclass has before the optimizer's own class."""

    _hvd: Settings
    _hvd_is_inside_another = False  # which does not reduce
    _hvd_is_reduced = False  # what comes from the one around this one, while that applies it

    def apply(self, grads: Sequence[Any], trainable_variables: Optional[Iterable[Any]] = None) -> Any:
        settings = self._hvd
        if self._hvd_is_reduced:
            return super().apply(grads, trainable_variables)
        if self._hvd_is_inside_another:
            raise ValueError(
                "hvd.DistributedOptimizer is inside of a LossScaleOptimizer (or MultiOptimizer), which then skips steps on some ranks only. Write "
                "hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer)), or give model.compile() the "
                "hvd.DistributedOptimizer, which Keras puts into one for a model of 'mixed_float16'"
            )
        if len(grads):
            _check_distribution()
            if trainable_variables is not None:
                trainable_variables = list(trainable_variables)
            own = self._trainable_variables if trainable_variables is None else trainable_variables
            if settings.passes > 1 and not isinstance(self, keras.optimizers.LossScaleOptimizer):
                grads = self._hvd_reduce_at_step(grads, own)
            else:
                grads = _reduce(settings, grads, own, settings.factor)
        return self._hvd_apply_reduced(super().apply, grads, trainable_variables)

    def stateless_apply(self, optimizer_variables: Any, grads: Sequence[Any], trainable_variables: Any) -> Any:
        # Most optimizers call `apply` from here. LossScaleOptimizer does not. It first checks whether the gradients are
        # finite, and must see the reduced ones, so that all ranks skip the same steps.
        if not isinstance(self, keras.optimizers.LossScaleOptimizer):
            return super().stateless_apply(optimizer_variables, grads, trainable_variables)
        _check_distribution()
        grads = _reduce(self._hvd, grads, self._trainable_variables, self._hvd.factor)
        return self._hvd_apply_reduced(super().stateless_apply, optimizer_variables, grads, trainable_variables)

    def _hvd_apply_reduced(self, apply: Callable[..., Any], *words: Any) -> Any:
        """Applies what is reduced, which a distributed optimizer within this one does not reduce again."""
        inner = getattr(self, "inner_optimizer", None)
        if not is_distributed(inner):
            return apply(*words)
        object.__setattr__(inner, "_hvd_is_reduced", True)
        try:
            return apply(*words)
        finally:
            object.__setattr__(inner, "_hvd_is_reduced", False)

    def _hvd_scaled_by(self, outer: Any) -> None:
        """Has the LossScaleOptimizer reduce that compile() has put around this one. It must see the reduced gradients, so that all ranks
        skip the same steps. This one still reduces where a loop of one's own applies gradients to it, whose loss nobody has scaled."""
        object.__setattr__(self, "_hvd_is_inside_another", False)
        if not is_distributed(outer):
            object.__setattr__(outer, "__class__", _class_for(type(outer), self._hvd))

    def _hvd_reduce_at_step(self, grads: Sequence[Any], variables: Sequence[Any]) -> List[Any]:
        """backward_passes_per_step: what Keras has accumulated and this gradient are reduced together, in the pass that steps. In the
        others nothing is, and Keras accumulates."""
        if not self.built:
            with keras.name_scope(self.name):
                self.build(variables)
            self.built = True
        settings = self._hvd
        places = [i for i, gradient in enumerate(grads) if gradient is not None]
        sums = [self._accumulated_gradients[self._get_variable_index(variables[i])] for i in places]
        before = [keras.ops.convert_to_tensor(variable) for variable in sums]
        own = [_dense(grads[i], value) for i, value in zip(places, before)]

        def step() -> Any:
            total = [gradient + value for gradient, value in zip(own, before)]
            reduced = _reduce(settings, total, [variables[i] for i in places], settings.factor)
            return [keras.ops.cast(r, g.dtype) for r, g in zip(reduced, own)], [keras.ops.zeros_like(v) for v in before]

        def wait() -> Any:
            return own, before

        is_step = keras.ops.equal((self._iterations + 1) % settings.passes, 0)
        reduced, left = keras.ops.cond(is_step, step, wait)
        for variable, value in zip(sums, left):
            variable.assign(value)
        results = list(grads)
        for i, value in zip(places, reduced):
            results[i] = value
        return results

    def register_local_var(self, var: Any) -> None:
        """The gradient of this variable (or those of this layer) is not reduced."""
        self._hvd.local_variables += getattr(var, "trainable_variables", None) or [var]

    @property
    def variables(self) -> List[Any]:
        return CallableList(super().variables)

    @property
    def lr(self) -> Any:
        return self.learning_rate

    @lr.setter
    def lr(self, value: Any) -> None:
        self.learning_rate = value

    def __setattr__(self, name: str, value: Any) -> None:
        # LossScaleOptimizer sets this on its inner optimizer.
        if name == "loss_scale_factor" and value is None and hasattr(self, name):  # not in its constructor
            object.__setattr__(self, "_hvd_is_inside_another", True)
        super().__setattr__(name, value)


def _class_for(base: Type[Any], settings: Settings) -> Type[Any]:
    """It has the settings, so that what its from_config() makes is distributed alike."""
    # Keras saves the module of the class in a file. Its own classes are saved under their public module, whatever the
    # backend has derived from them.
    module = "keras.optimizers" if base.__module__.partition(".")[0] == "keras" else base.__module__
    body = {"__module__": module, "__doc__": base.__doc__, "__qualname__": base.__qualname__, "_hvd": settings}
    kind = type(base.__name__, (_Distributed, base), body)
    save_as(kind, base, keras.utils)
    return kind


def is_distributed(optimizer: Any) -> bool:
    """Whether it came from DistributedOptimizer."""
    return isinstance(optimizer, _Distributed)


def distributed(optimizer: Any, name: Optional[str], *arguments: Any) -> Any:
    """The same object, whose gradients are reduced from now on; a name or a configuration is made an optimizer. `arguments`: those
    of Settings but the name."""
    if isinstance(optimizer, (str, dict)):
        optimizer = keras.optimizers.get(optimizer)
    is_scaling = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    inner = optimizer.inner_optimizer if is_scaling else optimizer
    # By the inner one's class: rank 0 may have loaded the model whose loss scale compile() makes on the others.
    settings = Settings(*arguments, name or type(inner).__name__)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        is_legacy = "keras" in type(optimizer).__module__
        hint = "; for tf-keras set TF_USE_LEGACY_KERAS=1, and import horovod.tensorflow.keras" if is_legacy else ""
        raise ValueError(f"hvd.DistributedOptimizer takes a Keras 3 optimizer, not {type(optimizer).__name__}{hint}")
    if is_distributed(optimizer):
        raise ValueError("this optimizer is a hvd.DistributedOptimizer already")
    _check_distribution()
    if is_distributed(inner):
        raise ValueError("give hvd.DistributedOptimizer the optimizer that is inside of hvd.DistributedOptimizer, not both")
    if settings.passes > 1:
        if isinstance(inner, getattr(keras.optimizers, "MultiOptimizer", ())):
            raise ValueError("backward_passes_per_step is not for a MultiOptimizer; set gradient_accumulation_steps of its optimizers")
        if inner.built:
            raise ValueError("backward_passes_per_step is for an optimizer that has not been used yet")
        if inner.gradient_accumulation_steps not in (None, settings.passes):
            raise ValueError("backward_passes_per_step and gradient_accumulation_steps are the same; give one of them")
        inner.gradient_accumulation_steps = settings.passes
    object.__setattr__(optimizer, "__class__", _class_for(type(optimizer), settings))
    return optimizer
