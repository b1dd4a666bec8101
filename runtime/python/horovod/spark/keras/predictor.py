"""KerasPredictor: calls a trained Keras model in a process of an executor.

Keras chooses its backend when it is first imported, so this module must not import it before the driver's backend is known.
"""

import os
import pickle
from typing import Any, Dict, List, Sequence

import cloudpickle
import numpy

from horovod.spark.keras import carried


class KerasPredictor:
    """Calls the model on a batch; opened at its first batch, with the backend of the driver."""

    def __init__(self, model: carried.Model, backend: str, floatx: str, features: Sequence[str]) -> None:
        self._packed = cloudpickle.dumps(model)  # it may have classes that inherit from Keras' own
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
        return pickle.loads(self._packed).open()

    def __call__(self, batch: Dict[str, numpy.ndarray]) -> List[numpy.ndarray]:
        if self._model is None:
            self._model = self._open()
        import keras

        from horovod.spark.keras.train import shaped

        inputs = [
            shaped(batch[name], tensor.shape[1:], name) for name, tensor in zip(self._features, self._model.inputs)
        ]
        outputs = self._model.predict_on_batch(inputs[0] if len(inputs) == 1 else inputs)
        return [numpy.asarray(output) for output in keras.tree.flatten(outputs)]  # in the order of model.outputs
