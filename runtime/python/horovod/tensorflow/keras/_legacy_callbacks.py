"""Callbacks and the elastic state for legacy Keras (tf-keras)."""

import contextlib
from typing import Any, Callable, Dict, List, Optional, Union

import numpy as np
import tensorflow as tf

from horovod.common import _arrays, _coverage, _fit_agreement, _old_keras, basics
from horovod.common._epoch_rest import EpochCount, EpochRest, batches_done, note_batches
from horovod.tensorflow.elastic import TensorFlowKerasState
from horovod.tensorflow.functions import broadcast_variables
from horovod.tensorflow.util import evaluated, key_of

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
    """Makes all ranks' weights and optimizer states those of one, after the first batch, when all are there.

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
        variables = list(self.model.variables) + _coverage.variables_of(getattr(self.model, "optimizer", None))
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


class LearningRateScheduleCallback(tf.keras.callbacks.Callback):
    """Sets the learning rate to initial_lr * multiplier(epoch) in the epochs from start_epoch until before end_epoch. Arguments: as in
    horovod.keras.callbacks."""

    def __init__(
        self,
        initial_lr: Optional[float] = None,
        multiplier: Union[float, Callable[[float], float], None] = None,
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
    ) -> None:
        super().__init__()
        _old_keras.check_rate("LearningRateScheduleCallback", None if isinstance(initial_lr, int) else initial_lr, "multiplier")
        if multiplier is None:
            raise ValueError(
                "Parameter `multiplier` is required: a number, or a function of the epoch; since Horovod 0.20 it comes after "
                "initial_lr, so write multiplier=..."
            )
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self._follows_optimizer = initial_lr is None
        self.staircase, self.momentum_correction, self.steps_per_epoch = staircase, momentum_correction, steps_per_epoch
        self.current_epoch = 0
        if callable(multiplier):
            self.multiplier = multiplier
        elif initial_lr is None:  # as older releases had it: a script's callbacks give 0.1, 0.01, 0.001 for parts of the epochs
            self.staircase, self.multiplier = True, lambda epoch: multiplier
        else:
            self.multiplier = lambda epoch: multiplier ** (epoch - start_epoch)

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._follows_optimizer:
            self.initial_lr = float(_K.get_value(self.model.optimizer.learning_rate))
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self._autodetect_steps_per_epoch()

    # This and _adjust_learning_rate have Horovod's names, by which subclasses of programs call and override them.

    def _autodetect_steps_per_epoch(self) -> int:
        """ValueError: Keras does not know it."""
        steps, samples, batch_size = (self.params.get(key) for key in ("steps", "samples", "batch_size"))
        if not steps and samples and batch_size:  # in graphs of TensorFlow 1 Keras tells these
            steps = -(-samples // batch_size)
        if not steps:
            raise ValueError("the number of batches of an epoch is not known here; give steps_per_epoch")
        return steps

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self.current_epoch < self.start_epoch or (self.end_epoch is not None and self.current_epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._adjust_learning_rate(self.current_epoch + float(batch) / self.steps_per_epoch)
        elif batch == 0:
            self._adjust_learning_rate(self.current_epoch)

    def _adjust_learning_rate(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old = float(_K.get_value(optimizer.learning_rate))
        new = float(self.initial_lr * self.multiplier(epoch))
        if np.float32(new) == np.float32(old):
            return
        _K.set_value(optimizer.learning_rate, new)
        # The momentum is a constant in the compiled step. Scaling the slots that it is multiplied with has the same
        # effect.
        if self.momentum_correction and old > 0:
            for slot in _momentum_slots(optimizer, self.model.trainable_variables):
                if tf.executing_eagerly():  # all stays on the device
                    slot.assign(slot * (new / old))
                else:
                    _K.set_value(slot, _K.get_value(slot) * (new / old))

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if logs is not None:
            logs["lr"] = float(_K.get_value(self.model.optimizer.learning_rate))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from initial_lr / size to initial_lr, batch by batch, in the first epochs. Arguments: as in
    horovod.keras.callbacks."""

    def __init__(
        self,
        initial_lr: Optional[float] = None,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
    ) -> None:
        _old_keras.check_rate("LearningRateWarmupCallback", initial_lr, "warmup_epochs")

        def multiplier(epoch: float) -> float:
            epoch += 1.0 / self.steps_per_epoch  # round numbers at the end of each epoch
            size = basics.size()
            return (epoch * (size - 1) / warmup_epochs + 1) / size

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose > 0 and basics.rank() == 0:
            rate = float(_K.get_value(self.model.optimizer.learning_rate))
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


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


class CommitStateCallback(tf.keras.callbacks.Callback):
    """Commits a state after every `batches_per_commit` batches, and at the end of each epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state, self.batches_per_commit, self._left = state, batches_per_commit, batches_per_commit

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._left = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._left -= 1
        if self._left == 0:
            self.commit()

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.commit()

    def commit(self) -> None:
        """Commits the state now, and counts batches anew."""
        self.state.commit()
        self._left = self.batches_per_commit


class UpdateBatchStateCallback(tf.keras.callbacks.Callback):
    """Keeps state.batch at the number of batches of this epoch that are done. After a failure the first epoch has only those that
    are left, of which the data begins anew."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._rest = EpochRest()
        self._is_first = True

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._is_first = True

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._rest.begin(self.params.get("steps"), batches_done(self.state) if self._is_first else 0)
        self._is_first = False

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        note_batches(self.state, self._rest.done(batch))
        if self._rest.is_through(self.state.batch):
            self._rest.stop(self.model)

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._rest.end(self.model)
        note_batches(self.state, 0)


class UpdateEpochStateCallback(tf.keras.callbacks.Callback):
    """Keeps state.epoch at the number of epochs that are done (EpochCount)."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._count = EpochCount(state)

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._count.begin_fit()

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._count.begin(epoch)

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._count.end(epoch)
