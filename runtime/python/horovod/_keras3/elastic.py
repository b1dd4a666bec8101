"""Training that goes on after a failed collective, for Keras.

    state = hvd.elastic.KerasState(model, batch=0, epoch=0)

    @hvd.elastic.run
    def train(state):
        model.fit(..., initial_epoch=state.epoch, callbacks=[hvd.elastic.UpdateEpochStateCallback(state),
                                                             hvd.elastic.CommitStateCallback(state)])

    train(state)

What horovod.torch.elastic says of restarted ranks holds here as well. The model must be built.
"""

import functools
import warnings
from typing import Any, Callable, List

import keras
import numpy as np

from horovod.common import _arrays, _coverage, _keras_callbacks, basics
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.process_sets import ProcessSet
from horovod._keras3 import _backend
from horovod._keras3._variables import broadcast_variables, values_of, variables_of

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "check", "run"]


class KerasState(ObjectState):
    """A model, its optimizer, and plain values: `KerasState(model, optimizer, batch=0, epoch=0)`.

    Args:
        model: built.
        optimizer: by default the one it was compiled with.
        Each keyword argument becomes an attribute.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "optimizer", _coverage.optimizer_of(model, optimizer))
        if not model.built:
            raise ValueError(
                "KerasState needs a model that is built: give its first layer the shape of its input, or model.build(input_shape)"
            )
        # All ranks have the same variables then, also one that comes later, when the others' optimizers have stepped.
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(model.trainable_variables)
        object.__setattr__(self, "_has_looked", _backend.NAME != "jax")
        super().__init__(_arrays.broadcast_object, basics.rank, **kwargs)
        self._save_model()

    def _save_model(self) -> None:
        values = values_of(variables_of(self.model, self.optimizer))
        if not self._has_looked and hasattr(self, "_saved_values"):
            self._look_for_training(values)
        object.__setattr__(self, "_saved_values", values)

    def _look_for_training(self, values: List[np.ndarray]) -> None:
        """Warns once of a loop of one's own on JAX, whose arrays the model does not have. Such a state says that batches are done,
        and has the weights of the beginning."""
        has_trained = any(not np.array_equal(value, before) for value, before in zip(values, self._saved_values))
        numbers = {name: value for name, value in self._saved_state.items() if isinstance(value, (int, float))}
        now = {name: getattr(self, name, None) for name in numbers}
        counts = any(isinstance(now[name], (int, float)) and now[name] != value for name, value in numbers.items())
        object.__setattr__(self, "_has_looked", has_trained or counts)
        if counts and not has_trained:
            warnings.warn(
                "KerasState has committed what the model had before: none of its variables has changed, as in a loop with "
                "stateless_apply. Assign the arrays to model.trainable_variables and optimizer.variables before commit(), or keep "
                "them in horovod.jax's hvd.elastic.JaxState",
                stacklevel=4,
            )

    def save(self) -> None:
        self._save_model()
        super().save()

    def restore(self) -> None:
        self._set_model()
        super().restore()

    def reset(self) -> None:
        # On JAX a fit() that is interrupted ends as others do: with the weights' averages in their place (use_ema).
        if _backend.NAME == "jax" and self._is_as_saved():
            self._set_model()

    def _set_model(self) -> None:
        for variable, value in zip(variables_of(self.model, self.optimizer), self._saved_values):
            variable.assign(value)

    def sync(self) -> None:
        """Gives all ranks the state of the rank that has committed most; only those that do not have it receive it."""
        self._share(self._send)

    def _send(self, root: int, process_set: ProcessSet) -> None:
        broadcast_variables(variables_of(self.model, self.optimizer), root, process_set, "KerasState")
        self._share_objects(root, lambda values: _arrays.broadcast_object(values, root, process_set=process_set))


def check(state: KerasState) -> List[str]:
    """Returns what this process has and `state` does not cover, a line for each, such as "SGD: an optimizer".

    Looked for are models and layers with variables that are trained, and optimizers. Call it before training. It looks at
    all objects of the process, which takes some tenths of a second.
    """
    layers, optimizers = _coverage.objects_of(keras.layers.Layer, keras.optimizers.Optimizer)
    known = _coverage.Variables(variables_of(state.model, state.optimizer))
    return sorted(_coverage.about_keras(layers, optimizers, known, state.optimizer))


class CommitStateCallback(_keras_callbacks.Commit, keras.callbacks.Callback):
    """Commits a state after every `batches_per_commit` batches, and at the end of each epoch."""


class UpdateBatchStateCallback(_keras_callbacks.UpdateBatch, keras.callbacks.Callback):
    """Keeps state.batch at the number of batches of this epoch that are done. After a failure the first epoch has only those that
    are left, of which the data begins anew."""


class UpdateEpochStateCallback(_keras_callbacks.UpdateEpoch, keras.callbacks.Callback):
    """Keeps state.epoch at the number of epochs that are done (EpochCount)."""


def reset() -> None:
    """Leaves the job and joins it anew. HorovodInternalError when not all ranks come in time."""
    basics.shutdown()
    basics.init()


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function of a state, and whatever else, so that it goes on after a failed collective.

    Raises (when the decorated function is called):
        HorovodInternalError: the ranks could not meet again, or the failure comes again and again with nothing committed in
            between.
    """
    if _backend.NAME == "jax":
        from horovod.jax import elastic

        return elastic.run(func)
    if _backend.NAME == "tensorflow":
        from horovod.tensorflow import elastic

        return elastic.run(func)
    return run_fn(functools.wraps(func)(lambda *args, **kwargs: func(*args, **kwargs)), reset)
