"""Which Keras horovod.keras is for."""

import importlib.util
import os
import sys


def _is_legacy() -> bool:
    """A script that has not imported keras uses tf.keras, which is legacy Keras where TF_USE_LEGACY_KERAS=1. Keras 3 would refuse
    its optimizers."""
    asked = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")  # as TensorFlow reads it
    on_tensorflow = os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow"
    if asked and on_tensorflow and "keras" not in sys.modules and importlib.util.find_spec("tf_keras"):
        return True
    import keras

    return int(keras.__version__.partition(".")[0]) < 3


IS_LEGACY = _is_legacy()
