"""Callbacks and the elastic state for legacy Keras (tf-keras)."""

import contextlib
from typing import Any, Dict, List, Optional

import tensorflow as tf

from horovod.common import _arrays, _fit_agreement, _keras_callbacks
from horovod.tensorflow.elastic import TensorFlowKerasState
from horovod.tensorflow.functions import broadcast_variables
from horovod.tensorflow.util import evaluated, key_of, state_of

__all__ = [  # of hvd.callbacks
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]

_K = tf.keras.backend


def _agreed_callbacks() -> List[Any]:
    """The callbacks of the fit, of which those that decide are on all ranks, and decide alike."""
    callbacks = _fit_agreement.callbacks_of_fit(tf.keras.callbacks.CallbackList)
    _fit_agreement.check_callbacks(callbacks, _ON_ALL_RANKS)
    _fit_agreement.end_together(callbacks, tf.keras.callbacks.TerminateOnNaN, lambda _: _TerminateOnAnyNaN())
    return list(callbacks)


class _TerminateOnAnyNaN(tf.keras.callbacks.Callback):
    """Ends the fit on all ranks at the same batch. A rank that ended it alone would leave the others waiting for its gradients."""

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if _fit_agreement.is_lost_anywhere((logs or {}).get("loss", 0.0)):
            print(f"Batch {batch}: invalid loss on one process at least, terminating training", flush=True)
            self.model.stop_training = True


class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):
    """Makes all ranks' weights and optimizer states, learning rates and loss scales among them, those of one, after the first batch,
    when all are there.

    Args:
        root_rank: whose.
        device: accepted for scripts that pass it.
        local_variables: variables, one or several, that each rank keeps to itself. ValueError: they are none.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.broadcast_done = False
        self._local: List[Any] = []
        is_one = isinstance(local_variables, tf.Variable)
        several = () if local_variables is None else [local_variables] if is_one else local_variables
        for variable in several:
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Each rank keeps this variable to itself. ValueError: it is none."""
        if not isinstance(var, tf.Variable):
            raise ValueError(f"All local variables must be of tf.Variable type. This one is {type(var).__name__}.")
        self._local.append(var)

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if not self.broadcast_done:
            callbacks = _agreed_callbacks()
            self._check_backups(callbacks)

    @staticmethod
    def _check_backups(callbacks: List[Any]) -> None:
        """ValueError where BackupAndRestore, which makes fit begin at a later epoch, is not on all ranks: those that have it
        would end before the others."""
        kind = getattr(tf.keras.callbacks, "BackupAndRestore", ())
        told = _arrays.allgather_object(any(isinstance(callback, kind) for callback in callbacks), "broadcast_callback.backup")
        if any(told) and not all(told):
            raise ValueError(
                f"only rank {told.index(True)} has the callback BackupAndRestore, and would begin at another epoch than the others "
                "when it restores; give it to all ranks, each with a folder of its own, or use Keras 3, where one rank is enough"
            )

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self.broadcast_done:
            return
        local = {key_of(variable) for variable in self._local}
        variables = list(self.model.variables) + state_of(getattr(self.model, "optimizer", None))
        evaluated(broadcast_variables([v for v in variables if key_of(v) not in local], self.root_rank))
        self.broadcast_done = True


_DECIDING = (tf.keras.callbacks.EarlyStopping, tf.keras.callbacks.ReduceLROnPlateau, tf.keras.callbacks.ModelCheckpoint)


class MetricAverageCallback(tf.keras.callbacks.Callback):
    """Averages the metrics of each epoch over all ranks, for the callbacks behind it: put it before those that decide by them."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self._average = _fit_agreement.MetricAverage()

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        callbacks = _agreed_callbacks()
        _fit_agreement.warn_of_order(callbacks, self, _DECIDING)

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._average.apply({} if logs is None else logs)


def _momentum_slots(optimizer: Any, variables: List[Any]) -> List[Any]:
    """The accumulated steps of an optimizer with momentum; an older optimizer has none before its first step."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not _K.get_value(getattr(optimizer, "momentum", 0.0)):
        return []
    if not hasattr(optimizer, "get_slot"):
        return list(getattr(optimizer, "momentums", ()))
    slots = []
    for variable in variables:
        with contextlib.suppress(KeyError):
            slots.append(optimizer.get_slot(variable, "momentum"))
    return slots


class LearningRateScheduleCallback(_keras_callbacks.Schedule, tf.keras.callbacks.Callback):
    """Sets the learning rate to initial_lr * multiplier(epoch) in the epochs from start_epoch until before end_epoch. Arguments: as in
    horovod.keras.callbacks."""

    @staticmethod
    def _rate_of(optimizer: Any) -> float:
        return float(_K.get_value(optimizer.learning_rate))

    @staticmethod
    def _set_rate(optimizer: Any, rate: float) -> None:
        _K.set_value(optimizer.learning_rate, rate)

    def _scale_momentum(self, optimizer: Any, factor: float) -> None:
        for slot in _momentum_slots(optimizer, self.model.trainable_variables):
            if tf.executing_eagerly():  # all stays on the device
                slot.assign(slot * factor)
            else:
                _K.set_value(slot, _K.get_value(slot) * factor)


class LearningRateWarmupCallback(_keras_callbacks.Warmup, LearningRateScheduleCallback):
    """Raises the learning rate from initial_lr / size to initial_lr, batch by batch, in the first epochs. Arguments: as in
    horovod.keras.callbacks."""


_ON_ALL_RANKS = (
    tf.keras.callbacks.EarlyStopping, tf.keras.callbacks.LearningRateScheduler, tf.keras.callbacks.ReduceLROnPlateau,
    tf.keras.callbacks.TerminateOnNaN, _TerminateOnAnyNaN, BroadcastGlobalVariablesCallback, LearningRateScheduleCallback,
    LearningRateWarmupCallback, MetricAverageCallback,
)  # fmt: skip


class BestModelCheckpoint(tf.keras.callbacks.ModelCheckpoint):
    """ModelCheckpoint that keeps the best only, and whose `filepath` is set later, before training."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
    ) -> None:
        super().__init__(
            "unset.keras", monitor, verbose, save_best_only=True, save_weights_only=save_weights_only, mode=mode,
            save_freq=save_freq,
        )  # fmt: skip
        self.filepath = None


class KerasState(TensorFlowKerasState):
    """A model, its optimizer, and plain values: `KerasState(model, optimizer, batch=0, epoch=0)`."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)


class CommitStateCallback(_keras_callbacks.Commit, tf.keras.callbacks.Callback):
    """Commits a state after every `batches_per_commit` batches, and at the end of each epoch."""


class UpdateBatchStateCallback(_keras_callbacks.UpdateBatch, tf.keras.callbacks.Callback):
    """Keeps state.batch at the number of batches of this epoch that are done. After a failure the first epoch has only those that
    are left, of which the data begins anew."""


class UpdateEpochStateCallback(_keras_callbacks.UpdateEpoch, tf.keras.callbacks.Callback):
    """Keeps state.epoch at the number of epochs that are done (EpochCount)."""
