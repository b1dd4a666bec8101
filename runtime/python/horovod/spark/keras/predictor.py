"""KerasPredictor: calls a trained Keras model in a process of an executor.

Keras chooses its backend when it is first imported, so this module must not import it before the driver's backend is known.
"""

import contextlib
import pickle
from typing import Any, Dict, List, Sequence

import cloudpickle
import numpy

from horovod.common._variables import env
from horovod.spark.keras import carried


class KerasPredictor:
    """Calls the model on a batch, on the CPU; opened at its first batch, with the backend of the driver."""

    def __init__(self, model: carried.Model, backend: str, floatx: str, features: Sequence[str]) -> None:
        self._packed = cloudpickle.dumps(model)  # it may have classes that inherit from Keras' own
        self._backend = backend
        self._floatx = floatx
        self._features = list(features)
        self._model: Any = None

    def _open(self) -> Any:
        # Where torch cannot tell the shape of an output, Keras computes it there, whatever keras.device() says.
        # Nothing of ours stays in a Spark worker's environment.
        with env(KERAS_BACKEND=self._backend, KERAS_TORCH_DEVICE="cpu"):
            import keras as imported
        _hide_gpus(self._backend)
        imported.config.set_floatx(self._floatx)
        with imported.device("cpu"):
            return pickle.loads(self._packed).open()

    def __call__(self, batch: Dict[str, numpy.ndarray]) -> List[numpy.ndarray]:
        if self._model is None:
            self._model = self._open()
        import keras

        from horovod.spark.keras.train import shaped

        inputs = [
            shaped(batch[name], tensor.shape[1:], name) for name, tensor in zip(self._features, self._model.inputs)
        ]
        with keras.device("cpu"):
            outputs = self._model.predict_on_batch(inputs[0] if len(inputs) == 1 else inputs)
        return [numpy.asarray(output) for output in keras.tree.flatten(outputs)]  # in the order of model.outputs


def _hide_gpus(backend: str) -> None:
    """A worker of Spark stays when its task is over, and would keep the memory that these take of every GPU they see."""
    with contextlib.suppress(RuntimeError):  # it has begun in this process before; then keras.device() must be enough
        if backend == "tensorflow":
            import tensorflow

            tensorflow.config.set_visible_devices([], "GPU")
        elif backend == "jax":
            import jax

            jax.config.update("jax_platforms", "cpu")
