"""What a fit does after each epoch: validation over all ranks, then a checkpoint."""

from typing import Any, Callable, Dict, Iterator, Optional, Sequence

import keras
import numpy as np

from horovod.common import _arrays, _lib


class Validation(keras.callbacks.Callback):
    """Adds val_... to an epoch's results: Keras' metrics over the rows of all ranks, as if one process had seen them all.

    The ranks' metrics are added up before their results are taken. The mean of the results would be another number for
    most of them (AUC, recall, a root), and Keras' own validation would need as many batches on each rank.
    """

    def __init__(
        self,
        batches: Callable[[], Iterator[Dict[str, Any]]],
        tensors: Callable[[Any], Any],
        told: Sequence[keras.callbacks.Callback],
    ) -> None:
        """`told`: the program's callbacks, which hear of the test and of its batches."""
        super().__init__()
        self._rows = batches
        self._tensors = tensors
        self._program = told

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        batches = map(self._tensors, self._rows())
        first = next(batches, None)
        self.model.reset_metrics()
        if first is not None:  # where there are fewer rows than ranks, some have none
            told = keras.callbacks.CallbackList(self._program)  # they have the model, and begin anew when they get one
            self.model.evaluate(_led_by(first, batches), verbose=0, callbacks=told)
        self._add_up()
        results = self.model.get_metrics_result()
        self.model.reset_metrics()
        if logs is not None:
            for name, value in results.items():
                array = _array(value)
                logs[f"val_{name}"] = array if array.shape else float(array)

    def _add_up(self) -> None:
        """Makes the state of each rank's metrics that of all ranks' rows."""
        variables = [variable for metric in self.model.metrics for variable in metric.variables]
        mine = [_array(variable) for variable in variables]
        (of_all,) = _arrays.allreduce([np.concatenate([each.reshape(-1) for each in mine])], ["estimator.validation"], _lib.SUM)
        ends = np.cumsum([each.size for each in mine])
        for variable, each, total in zip(variables, mine, np.split(of_all, ends[:-1])):
            # Those that are no sums say so; ranks have the same of them.
            if getattr(variable, "aggregation", "sum") == "sum":
                variable.assign(total.reshape(each.shape).astype(variable.dtype))


def _led_by(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    """A generator, as Keras wants it."""
    yield first
    yield from others


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


class SendLogs(keras.callbacks.Callback):
    """On rank 0, after what logs."""

    def __init__(self, logs: Any) -> None:
        super().__init__()
        self._logs = logs

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._logs.send()


class Checkpoint(keras.callbacks.Callback):
    """On rank 0, after those that change the results."""

    def __init__(self, fit: Any) -> None:
        super().__init__()
        self._fit = fit

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self._fit.save(epoch, logs or {})
