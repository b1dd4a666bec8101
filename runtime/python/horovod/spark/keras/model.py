"""KerasModel: a trained Keras model, which adds its outputs to a DataFrame."""

import os
from typing import Any, Dict, List, Sequence

import keras
import numpy

from horovod.spark.common import predict
from horovod.spark.common.estimator import HorovodModel
from horovod.spark.common.params import Parameter, described
from horovod.spark.keras import carried

_KERAS = (
    Parameter("custom_objects", "classes and functions that the model's file names", {}),
    Parameter("_floatx", "Keras' type of numbers that it was trained with", getter="_get_floatx", setter="_set_floatx"),
)


class KerasPredictor:
    """Calls the model on a batch; opened at its first batch, with the backend of the driver."""

    def __init__(self, model: carried.Model, backend: str, floatx: str, features: Sequence[str]) -> None:
        self._carried = model
        self._backend = backend
        self._floatx = floatx
        self._features = list(features)
        self._model: Any = None

    def _open(self) -> Any:
        before = os.environ.get("KERAS_BACKEND")
        os.environ["KERAS_BACKEND"] = self._backend
        try:
            import keras as imported
        finally:  # nothing of ours stays in a Spark worker's environment
            if before is None:
                del os.environ["KERAS_BACKEND"]
            else:
                os.environ["KERAS_BACKEND"] = before
        imported.config.set_floatx(self._floatx)
        return self._carried.open()

    def __call__(self, batch: Dict[str, numpy.ndarray]) -> List[numpy.ndarray]:
        from horovod.spark.keras.train import shaped

        if self._model is None:
            self._model = self._open()
        inputs = [
            shaped(batch[name], tensor.shape[1:], name) for name, tensor in zip(self._features, self._model.inputs)
        ]
        outputs = self._model.predict_on_batch(inputs[0] if len(inputs) == 1 else inputs)
        return [numpy.asarray(output) for output in keras.tree.flatten(outputs)]  # in the order of model.outputs


@described(_KERAS)
class KerasModel(HorovodModel):
    """A trained Keras model. transform() adds a column for each label, `<label>__output` by default."""

    def _transform(self, frame: Any) -> Any:
        model = self.getModel()
        predictor = KerasPredictor(carried.Model(model, self.getCustomObjects()), keras.config.backend(),
                                   self._get_floatx() or keras.config.floatx(), self.getFeatureColumns())  # fmt: skip
        metadata: Dict[str, Any] = self._get_metadata() or {}
        outputs: List[predict.Output] = []
        for name, label, tensor in zip(self.getOutputCols(), self.getLabelColumns(), model.outputs):
            row = tuple(2 if size is None else size for size in tensor.shape[1:])  # an unknown size makes it a vector
            outputs.append(predict.output_of(name, numpy.zeros((1, *row)), metadata.get(label)))
        return predict.transform(frame, predictor, self.getFeatureColumns(), outputs)

    def _to_saved(self, name: str, value: Any) -> Any:
        return carried.Saved(value, self.getCustomObjects()) if name == "model" else value

    def _from_saved(self, name: str, value: Any) -> Any:
        return value.open() if name == "model" else value
