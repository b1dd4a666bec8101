"""Callbacks for model.fit, the same on every backend: their collectives go through numpy."""

from typing import Any, Dict, List, Optional

import keras
import numpy as np

from horovod.common import _arrays, _coverage, _fit_agreement, _keras_callbacks, _lib
from horovod._keras3._variables import broadcast_variables, unique, variables_of

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


def _agreed_callbacks() -> List[Any]:
    """The callbacks of the fit, of which those that decide are on all ranks, and decide alike."""
    callbacks = _fit_agreement.callbacks_of_fit(keras.callbacks.CallbackList)
    _fit_agreement.check_callbacks(callbacks, _ON_ALL_RANKS)
    _fit_agreement.end_together(callbacks, keras.callbacks.TerminateOnNaN, TerminateOnAnyNaN.like)
    return list(callbacks)


class TerminateOnAnyNaN(keras.callbacks.Callback):
    """Ends the fit on all ranks at the same batch. A rank that ended it alone would leave the others waiting for its gradients.

    Args:
        raises: by an exception, as Keras' TerminateOnNaN(raise_error=True).
    """

    def __init__(self, raises: bool) -> None:
        super().__init__()
        self._raises = raises

    @staticmethod
    def like(callback: Any) -> "TerminateOnAnyNaN":
        """What does on all ranks what Keras' TerminateOnNaN does on one."""
        return TerminateOnAnyNaN(getattr(callback, "raise_error", False))

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        loss = keras.ops.convert_to_numpy((logs or {}).get("loss", 0.0))
        if not _fit_agreement.is_lost_anywhere(loss):
            return
        said = f"Batch {batch}: invalid loss on one process at least, terminating training"
        if self._raises:
            raise RuntimeError(said)
        print(said, flush=True)
        self.model.stop_training = True


def _has_values(value: Any) -> bool:
    """Whether it is a layer, or a variable of Keras or TensorFlow."""
    return isinstance(value, keras.layers.Layer) or hasattr(value, "assign")


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Makes all ranks' weights and optimizer states those of one, before the first batch; where a model's variables are made in that
    batch (a model that is not built, on TensorFlow), after it.

    Args:
        root_rank: whose.
        device: is there for Horovod's scripts, and changes nothing.
        local_variables: variables or layers, one or several, that each rank keeps to itself. ValueError: they are neither.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.broadcast_done = False
        self._local: List[Any] = []
        several = () if local_variables is None else [local_variables] if _has_values(local_variables) else local_variables
        for variable in several:
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Each rank keeps this variable, or those of this layer, to itself. ValueError: it is neither."""
        if not _has_values(var):
            raise ValueError(f"All local variables must be of tf.Variable type. This one is {type(var).__name__}.")
        self._local.append(var)

    def _broadcast(self) -> None:
        # A layer may have got its variables since it was registered.
        local = [v for one in self._local for v in (one.variables if isinstance(one, keras.layers.Layer) else [one])]
        # After a first batch these hold a gradient of each rank's own, where passes are added up before they are reduced.
        optimizer = getattr(self.model, "optimizer", None)
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        own = _coverage.Variables([*local, *getattr(optimizer, "_accumulated_gradients", ())])
        chosen = [v for v in unique(variables_of(self.model)) if v not in own]
        broadcast_variables(chosen, self.root_rank, name="broadcast_callback")
        self.broadcast_done = True

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if self.broadcast_done:
            return
        callbacks = _agreed_callbacks()
        self._agree_on_epoch(callbacks)
        optimizer = getattr(self.model, "optimizer", None)
        # TensorFlow would build it in the first batch, to whose gradients ranks with different loss scales would bring their own. A
        # model may say that it is built when its layers are not.
        if optimizer is not None and not optimizer.built and all(layer.built for layer in self.model._flatten_layers()):
            optimizer.build(self.model.trainable_variables)
        is_built = np.int32(self.model.built and (optimizer is None or optimizer.built))
        # One rank may have loaded a model, and then has all variables while the others have none.
        (all_built,) = _arrays.allreduce([is_built], ["broadcast_callback.built"], _lib.MIN)
        if all_built:
            self._broadcast()

    def _agree_on_epoch(self, callbacks: List[Any]) -> None:
        """Gives all ranks the epoch at which the root's fit begins. BackupAndRestore sets it where there is a backup, and on one
        rank alone it would make that rank end before the others.

        Raises:
            ValueError: it stands behind this callback, on some ranks only, and what it restores would be theirs alone.
        """
        behind = callbacks[callbacks.index(self) + 1 :] if self in callbacks else []
        is_behind = any(isinstance(callback, keras.callbacks.BackupAndRestore) for callback in behind)
        told = _arrays.allgather_object((is_behind, getattr(self.model, "_initial_epoch", None)), "broadcast_callback.epoch")
        ranks = [rank for rank, (stands_behind, _) in enumerate(told) if stands_behind]
        if 0 < len(ranks) < len(told):
            raise ValueError(
                f"BackupAndRestore stands behind hvd.callbacks.BroadcastGlobalVariablesCallback on rank {ranks[0]}, and not on all "
                "ranks; put it before, so that all ranks get what it restores"
            )
        if all(epoch is None for _, epoch in told):
            return
        self.model._initial_epoch = told[self.root_rank][1]

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if not self.broadcast_done:
            self._broadcast()


_DECIDING = (keras.callbacks.EarlyStopping, keras.callbacks.ReduceLROnPlateau, keras.callbacks.ModelCheckpoint)


class MetricAverageCallback(keras.callbacks.Callback):
    """Averages the metrics of each epoch over all ranks, for the callbacks behind it: put it before those that decide by them.

    Args:
        device: is there for Horovod's scripts, and changes nothing.
        weight: this rank's weight in the mean, its number of validation samples say; by default all have the same.
    """

    def __init__(self, device: str = "", weight: float = 1.0) -> None:
        super().__init__()
        self._average = _fit_agreement.MetricAverage(weight)

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        callbacks = _agreed_callbacks()
        _fit_agreement.warn_of_order(callbacks, self, _DECIDING)

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._average.apply({} if logs is None else logs)


def _momentum_slots(optimizer: Any) -> List[Any]:
    """The accumulated steps of SGD with momentum; of Adam and the like nothing has to be corrected."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not isinstance(getattr(optimizer, "momentum", None), (int, float)) or not optimizer.momentum:
        return []
    return [slot for slot in getattr(optimizer, "momentums", ()) if slot is not None]


class LearningRateScheduleCallback(_keras_callbacks.Schedule, keras.callbacks.Callback):
    """Sets the learning rate to initial_lr * multiplier(epoch) in the epochs from start_epoch until before end_epoch.

    Args:
        initial_lr: at the beginning; for all ranks together, as the others are. By default the optimizer's when fit begins;
            scripts for older releases of Horovod rely on it.
        multiplier: a function of the epoch; a constant is taken to the power of the epochs since start_epoch, and without
            initial_lr it is the factor of all of them, as in those releases.
        start_epoch, end_epoch: when; without an end, to the end.
        staircase: at the beginning of an epoch only; else in each batch, by epochs with a fraction.
        momentum_correction: what an optimizer with momentum has accumulated is scaled as the learning rate is.
        steps_per_epoch: batches of an epoch, where fit does not know it.
    """

    @staticmethod
    def _rate_of(optimizer: Any) -> float:
        return float(keras.ops.convert_to_numpy(optimizer.learning_rate))

    @staticmethod
    def _set_rate(optimizer: Any, rate: float) -> None:
        optimizer.learning_rate = rate

    @staticmethod
    def _scale_momentum(optimizer: Any, factor: float) -> None:
        for slot in _momentum_slots(optimizer):
            slot.assign(slot * factor)


class LearningRateWarmupCallback(_keras_callbacks.Warmup, LearningRateScheduleCallback):
    """Raises the learning rate from initial_lr / size to initial_lr, batch by batch, in the first epochs.

    Args:
        initial_lr: that it comes to; typically scaled by the number of ranks. By default the optimizer's.
        warmup_epochs: in so many epochs.
        verbose: 1 says when it is there.
        The others: as LearningRateScheduleCallback.
    """


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """ModelCheckpoint that keeps the best only, and whose `filepath` is set later, before training."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
    ) -> None:
        # Keras looks at the name's end now.
        unset = "unset.weights.h5" if save_weights_only else "unset.keras"
        super().__init__(
            unset, monitor, verbose, save_best_only=True, save_weights_only=save_weights_only, mode=mode, save_freq=save_freq
        )
        self.filepath = None

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if self.filepath is None:
            raise ValueError("BestModelCheckpoint: set its `filepath` before training")
        super().on_train_begin(logs)


_ON_ALL_RANKS = (
    keras.callbacks.EarlyStopping, keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau,
    keras.callbacks.TerminateOnNaN, TerminateOnAnyNaN, BroadcastGlobalVariablesCallback, LearningRateScheduleCallback,
    LearningRateWarmupCallback, MetricAverageCallback,
)  # fmt: skip
