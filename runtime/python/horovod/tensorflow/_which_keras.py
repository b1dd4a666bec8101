"""Which Keras tf.keras is."""

import importlib

import tensorflow as tf

# "keras", which is Keras 2 up to TensorFlow 2.15; or the package tf_keras, which is Keras 2 too.
_package = importlib.import_module(tf.keras.Model.__module__.partition(".")[0])
IS_LEGACY = int(_package.__version__.partition(".")[0]) < 3


def check_backend() -> None:
    """Raises ImportError where Keras 3 does not run on TensorFlow."""
    if not IS_LEGACY and _package.backend.backend() != "tensorflow":
        raise ImportError(
            f"horovod.tensorflow.keras needs Keras on TensorFlow, and it runs on {_package.backend.backend()}: set "
            "KERAS_BACKEND=tensorflow before keras is imported, or import horovod.keras, which takes each backend"
        )
