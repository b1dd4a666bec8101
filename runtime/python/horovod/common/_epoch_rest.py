"""The rest of an epoch: after a failure, Keras' fit() trains only the batches of the epoch that were not done before."""

from typing import Any, Optional


class _Stop(int):
    """A true value of stop_training that is known as ours, so that what another callback sets stays."""


class EpochRest:
    """Counts the batches of an epoch, and ends it after those that were left. Thread: the one that calls fit()."""

    def __init__(self) -> None:
        self._before = 0
        self._steps: Optional[int] = None
        self._stop = _Stop(1)

    def begin(self, steps: Optional[int], before: int) -> None:
        """An epoch begins: it has this many batches (None: not known), of which some were done before the failure."""
        self._before = before
        self._steps = steps if before else None

    def done(self, batch: int) -> int:
        """The number of the epoch's batches that are done, after `batch` of this fit()."""
        return self._before + batch + 1

    def is_through(self, done: int) -> bool:
        return self._steps is not None and done >= self._steps

    def stop(self, model: Any) -> None:
        """fit() leaves the epoch after this batch."""
        if not model.stop_training:
            model.stop_training = self._stop

    def end(self, model: Any) -> None:
        """The epoch has ended: fit() goes on with the next one, unless somebody else has stopped it."""
        if model.stop_training is self._stop:
            model.stop_training = False


def batches_done(state: Any) -> int:
    """Returns how many batches of the epoch were done before fit(). Scripts make a state with `batch=100`, as Horovod's
    manual does, before any was."""
    is_counted = getattr(state, "is_counted", None)
    return state.batch if is_counted is None or is_counted("batch") else 0


def note_batches(state: Any, count: int) -> None:
    """So many batches of the epoch are done."""
    state.batch = count
    if hasattr(state, "note_counted"):
        state.note_counted("batch")


class EpochCount:
    """Keeps state.epoch at the number of epochs that are done, whether fit() is told of those before
    (initial_epoch=state.epoch), or of how many are left (epochs=24 - state.epoch)."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._before = 0  # epochs that were done when fit() began
        self._first: Optional[int] = None  # fit's number of its first epoch

    def begin_fit(self) -> None:
        self._before, self._first = self._state.epoch, None

    def begin(self, epoch: int) -> None:
        """An epoch begins; by fit's number."""
        self._first = epoch if self._first is None else self._first

    def end(self, epoch: int) -> None:
        """An epoch has ended; by fit's number."""
        self._state.epoch = self._before + epoch - (self._first or 0) + 1
