"""Which Keras tf.keras is."""

import tensorflow as tf

IS_LEGACY = tf.keras.Model.__module__.partition(".")[0] != "keras"  # it is in the package tf_keras then

if not IS_LEGACY:
    import keras

    if keras.backend.backend() != "tensorflow":
        raise ImportError(
            f"horovod.tensorflow.keras needs Keras on TensorFlow, and it runs on {keras.backend.backend()}: set "
            "KERAS_BACKEND=tensorflow before keras is imported, or import horovod.keras, which takes each backend"
        )
