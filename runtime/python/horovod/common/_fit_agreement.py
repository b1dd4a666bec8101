"""What the ranks of a `fit` must agree on: the callbacks that decide how all of them train, and the metrics these decide by.

No framework is imported here, because Keras 3 and legacy Keras bring their own classes.
"""

import sys
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

from horovod.common import _arrays, _lib, basics

_MAX_RANKS = 8  # are named in a message


def callbacks_of_fit(list_class: type) -> List[Any]:
    """Returns the list of the callbacks of the `fit` that this call comes from. Keras gives it to nobody, but calls them from a
    method of its."""
    frame = sys._getframe(1)
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, list_class):
            return found.callbacks
        frame = frame.f_back
    return []


def end_together(callbacks: List[Any], kind: type, make: Callable[[Any], Any]) -> None:
    """Puts into the list of a `fit`, for each callback of this very class, what `make` gives for it, which decides for all ranks."""
    for place, callback in enumerate(callbacks if basics.size() > 1 else ()):
        if type(callback) is kind:
            callbacks[place] = make(callback)
            callbacks[place].set_params(callback.params)
            callbacks[place].set_model(callback.model)


def is_lost_anywhere(loss: Any) -> bool:
    """Whether this loss of a batch is no number on any rank. All ranks call it after the same batch."""
    is_lost = np.array([float(not np.isfinite(np.asarray(loss, np.float64)).all())])
    (of_all,) = _arrays.allreduce([is_lost], ["fit.terminate"], _lib.MAX)
    return bool(of_all[0])


def _described(callback: Any, kinds: Sequence[type]) -> Optional[str]:
    """Returns the name of the first of `kinds` that it is, with the metric that it decides by; None if it is none."""
    kind = next((kind for kind in type(callback).__mro__ if kind in kinds), None)
    name = None if kind is None else kind.__name__
    if name == "TerminateOnNaN" and type(callback) is not kind:
        return "a subclass of TerminateOnNaN"  # with no collective of its own, as end_together() gives to the class itself
    monitor = getattr(callback, "monitor", None)
    return f"{name} of {monitor}" if name and isinstance(monitor, str) else name


def _owners_text(ranks: Sequence[int]) -> str:
    more = len(ranks) - _MAX_RANKS
    names = ", ".join(map(str, ranks[:_MAX_RANKS])) + (f" and {more} more" if more > 0 else "")
    return f"only rank {names} has" if len(ranks) == 1 else f"only ranks {names} have"


def _by_ranks(told: Sequence[Sequence[str]]) -> Dict[str, List[int]]:
    """Returns which ranks have what only some of them have."""
    everything = sorted(set().union(*told))
    owners = {name: [rank for rank, names in enumerate(told) if name in names] for name in everything}
    return {name: ranks for name, ranks in owners.items() if len(ranks) < len(told)}


def _text(partial: Dict[str, List[int]]) -> str:
    return "; ".join(f"{_owners_text(ranks)} {name}" for name, ranks in partial.items())


def check_callbacks(callbacks: Sequence[Any], kinds: Sequence[type]) -> None:
    """Compares the ranks' callbacks of these kinds, before they train. All ranks call it at the same place.

    Raises:
        ValueError: some ranks have one that others lack, so that these would wait for ever, or train otherwise; on every
            rank.
    """
    described = {_described(callback, kinds) for callback in callbacks} - {None}
    partial = _by_ranks(_arrays.allgather_object(sorted(described), "callbacks_of_fit"))
    if partial:
        raise ValueError(
            "callbacks of fit that decide how all ranks train must be on all of them; here "
            + _text(partial)
            + ". Other ranks would wait for ever, or their weights would become others. Give these to all ranks, behind "
            "hvd.callbacks.MetricAverageCallback(); only what saves or reports may be for one"
        )


def warn_of_order(callbacks: Sequence[Any], own: Any, kinds: Sequence[type]) -> None:
    """Warns of callbacks of these kinds that stand before `own`: ranks that decide by metrics of their own would stop, or
    change their learning rate, at different times."""
    for callback in callbacks:
        if callback is own:
            return
        if isinstance(callback, tuple(kinds)):
            warnings.warn(
                f"{type(callback).__name__} stands before hvd.callbacks.MetricAverageCallback, and so decides on each rank by "
                "that rank's own metrics; put it behind",
                stacklevel=3,
            )


class MetricAverage:
    """MetricAverage makes the metrics of an epoch the same on all ranks: each is the mean over the ranks that have it."""

    def __init__(self, weight: float = 1.0) -> None:
        self._weight = float(weight)
        self._has_warned = False

    def apply(self, logs: Dict[str, Any]) -> None:
        """Puts the means into `logs`, also of metrics that this rank has not. So callbacks decide alike where one rank alone
        has validation data. All ranks call it at the same place."""
        own = {name: float(value) for name, value in logs.items() if np.ndim(value) == 0}
        told = _arrays.allgather_object(sorted(own), "metric_average.names")
        names = sorted(set().union(*told))
        self._warn_of(_by_ranks(told))
        if not names:
            return
        weights = np.array([self._weight if name in own else 0.0 for name in names], np.float64)
        sums = np.array([own.get(name, 0.0) for name in names], np.float64) * weights
        (total,) = _arrays.allreduce([np.stack([sums, weights])], ["metric_average." + ",".join(names)], _lib.SUM)
        for name, value, weight in zip(names, *total):
            if weight:
                logs[name] = float(value / weight)

    def _warn_of(self, partial: Dict[str, List[int]]) -> None:
        if not partial or self._has_warned or basics.rank() != 0:
            return
        self._has_warned = True
        warnings.warn(
            "hvd.callbacks.MetricAverageCallback: not all ranks have the same metrics; "
            + _text(partial)
            + ". All ranks get the mean over those that have one. Give each rank its share of the validation data to measure "
            "on all of it",
            stacklevel=3,
        )
