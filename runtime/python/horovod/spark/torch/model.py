"""TorchModel: a trained PyTorch model, which adds its outputs to a DataFrame."""

from typing import Any, Callable, Dict, List, Optional

import numpy
import torch

from horovod.spark.common import predict
from horovod.spark.common.estimator import HorovodModel
from horovod.spark.common.params import Parameter, described
from horovod.spark.torch import optimizers
from horovod.spark.torch.batches import Casts, Features

_TORCH = (
    Parameter("optimizer", "the optimizer with its state, and the learning rate of one process"),
    Parameter("input_shapes", "shape of each input of the model; a first -1 stands for the rows"),
    Parameter("loss", "the loss, or the list of losses, that it was trained with"),
    Parameter("loss_constructors", "functions that made the losses"),
    Parameter("_casts", "how values were made tensors", getter="_get_casts", setter="_set_casts", is_ours=True),
)


class TorchPredictor:
    """Calls the model on a batch; in the executors, on the CPU."""

    def __init__(self, model: torch.nn.Module, features: Features) -> None:
        self._model = model
        self._features = features

    @torch.no_grad()
    def __call__(self, batch: Dict[str, numpy.ndarray]) -> List[numpy.ndarray]:
        outputs = self._model.eval()(*self._features(batch))
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        rows = len(next(iter(batch.values())))
        return [_by_rows(output.numpy(), rows) for output in outputs]


def _by_rows(values: numpy.ndarray, rows: int) -> numpy.ndarray:
    """The values of each row. A model that ends with squeeze() also drops the dimension of the rows where there is one row."""
    return values.reshape(1, -1) if rows == 1 and values.shape[:1] != (1,) else values


class RowPredictor:
    """Calls a program's own function with the model and one row after the other. The function returns what is for the first
    of the labels, or a list with an output for each."""

    def __init__(self, model: torch.nn.Module, function: Callable[[Any, Any], Any], labels: int) -> None:
        self._model = model
        self._function = function
        self._labels = labels

    def __call__(self, rows: List[Any]) -> List[List[numpy.ndarray]]:
        model = self._model.eval()
        found = [self._outputs(self._function(model, row)) for row in rows]
        return [list(values) for values in zip(*found)]

    def _outputs(self, told: Any) -> List[numpy.ndarray]:
        values = told if isinstance(told, (list, tuple)) else [told]
        if len(values) < self._labels or any(isinstance(value, (int, float)) for value in values[self._labels :]):
            raise ValueError(
                f"the function of get_prediction_fn() returned {len(values)} outputs for {self._labels} labels; it must return "
                "a list with one for each label, in which what has several numbers is a tensor or an array"
            )
        return [numpy.asarray(value.detach().cpu() if torch.is_tensor(value) else value).reshape(-1) for value in values]


@described(_TORCH)
class TorchModel(HorovodModel):
    """A trained PyTorch model. transform() adds a column for each label, `<label>__output` by default."""

    def getOptimizer(self) -> Optional[torch.optim.Optimizer]:
        """The optimizer, on the parameters of the model."""
        model, optimizer = self.getModel(), self.getOrDefault("optimizer")
        return optimizer if model is None or optimizer is None else optimizers.tied(model, optimizer)

    def _to_saved(self, name: str, value: Any) -> Any:
        return optimizers.saved(self.getModel(), value) if name == "optimizer" else value

    def _from_saved(self, name: str, value: Any) -> Any:
        return optimizers.loaded(value) if name == "optimizer" else value

    def _transform(self, frame: Any) -> Any:
        labels, names = self.getLabelColumns() or [], self.getOutputCols()
        casts = self._get_casts() or Casts()
        features = Features(self.getFeatureColumns(), self.getInputShapes(), casts.features)
        predictor = TorchPredictor(self.getModel().cpu(), features)
        metadata = self._get_metadata() or {}
        outputs = [predict.output_of(name, width, metadata.get(label))
                   for name, width, label in zip(names, self._widths(predictor, frame, names), labels)]  # fmt: skip
        return predict.transform(frame, predictor, self.getFeatureColumns(), outputs)

    def _widths(self, predictor: TorchPredictor, frame: Any, names: List[str]) -> List[int]:
        """How many values each output has: learnt from two rows of zeros, so that no row of the frame is computed for it, or
        from the first row, where the model refuses zeros."""
        features = self.getFeatureColumns()
        try:
            results = predictor(predict.zeros_like(frame, features, self.getInputShapes(), self._get_metadata()))
        except Exception:
            return predict.widths_in_first_row(
                frame, names, lambda one, outputs: predict.transform(one, predictor, features, outputs)
            )
        return [array[0].size for array in results]
