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
        sums: Dict[str, Any] = {}
        rows = 0
        for batch in self._rows():
            count = len(next(iter(batch.values())))
            inputs, labels, *weights = self._tensors(batch)
            weight = weights[0] if weights else None
            found = self.model.test_on_batch(inputs, labels, sample_weight=weight, return_dict=True)
            self.model.reset_metrics()
            rows += count
            for name, value in found.items():
                sums[name] = sums.get(name, 0.0) + count * _array(value)
        # The names are those of the training, which every rank has. A rank without rows of validation has no others.
        names = sorted(logs or {})
        shapes = [_array((logs or {})[name]).shape for name in names]
        parts = [np.broadcast_to(sums.get(name, 0.0), shape).reshape(-1) for name, shape in zip(names, shapes)]
        mine = np.concatenate([[float(rows)], *parts])
        (of_all,) = _arrays.allreduce([mine], ["estimator.validation"], _lib.SUM)
        if logs is not None:
            ends = np.cumsum([part.size for part in parts])
            for name, shape, value in zip(names, shapes, np.split(of_all[1:] / of_all[0], ends[:-1])):
                logs[f"val_{name}"] = value.reshape(shape) if shape else float(value[0])


def _array(value: Any) -> np.ndarray:
    """A metric's value: a number, or one for each class."""
    return np.asarray(keras.ops.convert_to_numpy(value), np.float64)


@keras.saving.register_keras_serializable("horovod")
class Scaled(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule whose rates are multiplied: by the number of ranks, during a fit."""

    def __init__(self, schedule: Any, factor: float) -> None:
        self._schedule = schedule
        self._factor = factor

    def __call__(self, step: Any) -> Any:
        return self._schedule(step) * self._factor

    def get_config(self) -> Dict[str, Any]:
        return {"schedule": keras.saving.serialize_keras_object(self._schedule), "factor": self._factor}

    @classmethod
    def from_config(cls, config: Dict[str, Any]) -> "Scaled":
        return cls(keras.saving.deserialize_keras_object(config["schedule"]), config["factor"])


class Checkpoint(keras.callbacks.Callback):
    """On rank 0, after those that change the results."""

    def __init__(self, fit: Any) -> None:
        super().__init__()
        self._fit = fit

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._fit.save(epoch, logs or {})
