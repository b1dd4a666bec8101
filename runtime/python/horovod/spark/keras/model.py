"""KerasModel: a trained Keras model, which adds its outputs to a DataFrame."""

import math
from typing import Any, Dict, List

import keras

from horovod.spark.common import predict
from horovod.spark.common.estimator import HorovodModel
from horovod.spark.common.params import Parameter, described
from horovod.spark.keras import carried
from horovod.spark.keras.predictor import KerasPredictor

_KERAS = (
    Parameter("custom_objects", "classes and functions that the model's file names", {}),
    Parameter("_floatx", "Keras' type of numbers that it was trained with", getter="_get_floatx", setter="_set_floatx"),
)


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
            width = math.prod(2 if size is None else size for size in tensor.shape[1:])  # an unknown size makes it a vector
            outputs.append(predict.output_of(name, width, metadata.get(label)))
        return predict.transform(frame, predictor, self.getFeatureColumns(), outputs)

    def _to_saved(self, name: str, value: Any) -> Any:
        return carried.Saved(value, self.getCustomObjects()) if name == "model" else value

    def _from_saved(self, name: str, value: Any) -> Any:
        return value.open() if name == "model" else value
