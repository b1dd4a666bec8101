"""What callbacks do that are the same for Keras 3 and legacy Keras. A front's class is one of these and its Keras' Callback, whose
`model` and `params` are used here.

No framework is imported here. Both call on_batch_begin and on_batch_end while they train, and at no other time.
"""

from typing import Any, Callable, Dict, Optional, Union

import numpy as np

from horovod.common import _old_keras, basics
from horovod.common._epoch_rest import EpochCount, EpochRest, batches_done, note_batches


class Schedule:
    """Schedule is LearningRateScheduleCallback, but for what a front's class says of an optimizer: `_rate_of(optimizer)`,
    `_set_rate(optimizer, rate)`, and `_scale_momentum(optimizer, factor)` for what it has accumulated."""

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

    def begin_at(self, rate: float) -> None:
        """The rate at the beginning is this, and not the optimizer's when fit begins, which a continued run has changed."""
        self.initial_lr, self._follows_optimizer = rate, False

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._follows_optimizer:
            self.initial_lr = self._rate_of(self.model.optimizer)
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
        optimizer = self.model.optimizer  # by the property, which brings JAX's state into the variables
        old = self._rate_of(optimizer)
        new = float(self.initial_lr * self.multiplier(epoch))
        if np.float32(new) == np.float32(old):
            return
        self._set_rate(optimizer, new)
        # The momentum is a constant in the compiled step. Scaling the slots that it is multiplied with has the same
        # effect.
        if self.momentum_correction and old > 0:
            self._scale_momentum(optimizer, new / old)

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if logs is not None:
            logs["lr"] = self._rate_of(self.model.optimizer)


class Warmup:
    """Warmup is LearningRateWarmupCallback, for a class that is the front's LearningRateScheduleCallback too."""

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
            rate = self._rate_of(self.model.optimizer)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


class Commit:
    """Commit is CommitStateCallback."""

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
        _ = self.model  # brings JAX's state into the variables
        self.state.commit()
        self._left = self.batches_per_commit


class UpdateBatch:
    """UpdateBatch is UpdateBatchStateCallback."""

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


class UpdateEpoch:
    """UpdateEpoch is UpdateEpochStateCallback."""

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
