"""Training that goes on after a failed collective.

    state = hvd.elastic.TensorFlowKerasState(model, optimizer, epoch=0, batch=0)

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, 10):
            ...
            state.commit()

    train(state)

What horovod.torch.elastic says of ranks that are started anew holds here too.
"""

import sys
import warnings
from typing import Any, Callable, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from horovod.common import _arrays, _coverage
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.process_sets import ProcessSet
from horovod.tensorflow import _aggregation
from horovod.tensorflow.functions import broadcast_object
from horovod.tensorflow.mpi_ops import init, rank, shutdown
from horovod.tensorflow.util import state_of

__all__ = ["TensorFlowKerasState", "TensorFlowState", "check", "run"]


def reset() -> None:
    """Leaves the job and joins it anew. HorovodInternalError when not all ranks come in time."""
    shutdown()
    init()


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function of a state, and whatever else, so that it goes on after a failed collective.

    Raises (when the decorated function is called):
        HorovodInternalError: the ranks could not meet again, or the failure comes again and again with nothing
            committed in between.
    """
    return run_fn(func, reset)


class _ArraysState(ObjectState):
    """A state of arrays, which are taken from and put back into a framework's objects, and of plain objects."""

    def __init__(self, **kwargs: Any) -> None:
        self._arrays: List[np.ndarray] = []
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **kwargs)
        self._save_arrays()

    def _get(self) -> List[np.ndarray]:
        raise NotImplementedError

    def _set(self, arrays: Sequence[np.ndarray]) -> None:
        raise NotImplementedError

    def _session(self) -> Any:
        """Of TensorFlow 1; None outside of its graphs."""
        return None if tf.executing_eagerly() else tf.compat.v1.keras.backend.get_session()

    def _values(self, variables: Sequence[Any]) -> List[np.ndarray]:
        session = self._session()
        return [np.asarray(variable) for variable in variables] if session is None else session.run(list(variables))

    def _assign(self, variables: Sequence[Any], arrays: Sequence[np.ndarray]) -> None:
        session = self._session()
        for variable, array in zip(variables, arrays):
            if session is None:
                variable.assign(array)
            else:
                variable.load(array, session)

    def _save_arrays(self) -> None:
        self._arrays = [np.array(array) for array in self._get()]

    def save(self) -> None:
        self._save_arrays()
        super().save()

    def restore(self) -> None:
        _aggregation.count_anew(self._session())
        self._set(self._arrays)
        super().restore()

    def sync(self) -> None:
        """Gives all ranks the state of the rank that has committed most; only those that do not have it receive it."""
        _aggregation.count_anew(self._session())  # ranks that join have summed up nothing
        self._share(self._send)

    def _send(self, root: int, process_set: ProcessSet) -> None:
        arrays = [np.asarray(array) for array in self._get()]
        forms = [(array.shape, array.dtype) for array in arrays]
        forms_there = broadcast_object(forms, root, process_set=process_set)
        if rank() != root and forms_there != forms:
            # Shapes differ for an optimizer that has not stepped yet, for example; then the root's shapes are used.
            arrays = [np.empty(shape, dtype) for shape, dtype in forms_there]
        names = [f"{type(self).__name__}.{i}" for i in range(len(arrays))]
        arrays = _arrays.broadcast(arrays, names, root, process_set) if arrays else []
        if rank() != root:
            self._set(arrays)
        self._share_objects(root, lambda values: broadcast_object(values, root, process_set=process_set))


class TensorFlowState(_ArraysState):
    """Variables and plain objects: TensorFlowState(variables=[...], batch=0).

    Args:
        variables: those to keep. Where none are given, the state has in a graph of TensorFlow 1 all global ones, and elsewhere
            plain objects only.
        session: of TensorFlow 1.
    """

    def __init__(self, variables: Optional[Sequence[Any]] = None, session: Any = None, **kwargs: Any) -> None:
        if variables is None:
            variables = [] if tf.executing_eagerly() else tf.compat.v1.global_variables()
            if tf.executing_eagerly():
                warnings.warn("TensorFlowState without variables=[...] keeps plain objects only, and no weights", stacklevel=2)
        self.variables = list(variables)
        self.session = session
        super().__init__(**kwargs)

    def _session(self) -> Any:
        if tf.executing_eagerly():
            return None
        return self.session or tf.compat.v1.get_default_session() or tf.compat.v1.keras.backend.get_session()

    def _get(self) -> List[np.ndarray]:
        return self._values(self.variables)

    def _set(self, arrays: Sequence[np.ndarray]) -> None:
        self._assign(self.variables, arrays)


class TensorFlowKerasState(_ArraysState):
    """A Keras model with its optimizer, and plain objects: TensorFlowKerasState(model, optimizer, epoch=0, batch=0).

    Args:
        model: built.
        optimizer: the model's own where none is given.
        backend: accepted for scripts that pass it.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        self.model = model
        self.backend = backend
        self.optimizer = _coverage.optimizer_of(model, optimizer)
        if not model.built:
            raise ValueError(
                f"{type(self).__name__} needs a model that is built: give its first layer the shape of its input, or call it once"
            )
        # All ranks have the same variables then, also one that comes later, when the others' optimizers have stepped.
        build = getattr(self.optimizer, "build", getattr(self.optimizer, "_create_all_weights", None))
        if build is not None and not getattr(self.optimizer, "built", False):
            build(model.trainable_variables)
        super().__init__(**kwargs)

    def _get(self) -> List[np.ndarray]:
        return list(self.model.get_weights()) + self._values(state_of(self.optimizer))

    def _set(self, arrays: Sequence[np.ndarray]) -> None:
        count = len(self.model.get_weights())
        self.model.set_weights(list(arrays[:count]))
        self._assign(state_of(self.optimizer), arrays[count:])


def check(state: Any) -> List[str]:
    """Returns what this process has and `state` does not cover, a line for each, such as "SGD: an optimizer".

    `state` is a TensorFlowState, a TensorFlowKerasState or a KerasState. Looked for are models, layers and modules with
    variables that are trained, optimizers of Keras, and other variables that are trained. Call it before training. It
    looks at all objects of the process, which takes some tenths of a second.
    """
    libraries = [sys.modules[name] for name in ("keras", "tf_keras") if name in sys.modules]
    kinds = [library.optimizers.Optimizer for library in libraries]
    if "tf_keras" in sys.modules:
        kinds.append(sys.modules["tf_keras"].optimizers.legacy.Optimizer)
    kinds_of_layers = (tf.Module, *(library.layers.Layer for library in libraries))
    optimizers, layers, variables = _coverage.objects_of(tuple(kinds), kinds_of_layers, tf.Variable)
    layers = [layer for layer in layers if not any(layer is optimizer for optimizer in optimizers)]
    own = getattr(state, "optimizer", None)
    model = getattr(state, "model", None)
    kept = state.variables if model is None else [*model.weights, *_coverage.variables_of(own)]
    known = _coverage.Variables(kept)
    lines = _coverage.about_keras(layers, optimizers, known, own)
    others = [variable for layer in layers for variable in layer.variables]
    others += [variable for optimizer in optimizers for variable in _coverage.variables_of(optimizer)]
    told = _coverage.Variables([*kept, *others])
    for variable in variables:
        if variable.trainable and variable not in told:
            lines.append(f"{variable.name}: a variable of {_coverage.count_of([variable])} trained numbers")
            told.add(variable)  # what an assignment returned stands for the same one
    return sorted(lines)
