"""What a fit does after each epoch: validation over all ranks, then a checkpoint."""

from typing import Any, Callable, Dict, Iterator, Optional

import keras
import numpy as np

from horovod.common import _arrays, _lib


class Validation(keras.callbacks.Callback):
    """Adds val_... to an epoch's results: over the rows of all ranks, each of which counts once.

    Keras would average the ranks' own averages, and needs as many batches on each.
    """

    def __init__(self, batches: Callable[[], Iterator[Dict[str, Any]]], tensors: Callable[[Any], Any]) -> None:
        super().__init__()
        self._rows = batches
        self._tensors = tensors

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        sums: Dict[str, float] = {}
        rows = 0
        for batch in self._rows():
            count = len(next(iter(batch.values())))
            inputs, labels, *weights = self._tensors(batch)
            weight = weights[0] if weights else None
            found = self.model.test_on_batch(inputs, labels, sample_weight=weight, return_dict=True)
            self.model.reset_metrics()
            rows += count
            for name, value in found.items():
                sums[name] = sums.get(name, 0.0) + count * float(value)
        # The names are those of the training, which every rank has. A rank without rows of validation has no others.
        names = sorted(logs or {})
        mine = np.array([rows, *[sums.get(name, 0.0) for name in names]], np.float64)
        (of_all,) = _arrays.allreduce([mine], ["estimator.validation"], _lib.SUM)
        if logs is not None:
            logs.update({f"val_{name}": float(value / of_all[0]) for name, value in zip(names, of_all[1:])})


class Checkpoint(keras.callbacks.Callback):
    """On rank 0, after those that change the results."""

    def __init__(self, fit: Any) -> None:
        super().__init__()
        self._fit = fit

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._fit.save(epoch, logs or {})
