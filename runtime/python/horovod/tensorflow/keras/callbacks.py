"""Callbacks for model.fit, for the Keras that tf.keras is."""

from horovod.tensorflow._which_keras import IS_LEGACY as _IS_LEGACY

if _IS_LEGACY:
    from horovod.tensorflow.keras._legacy_callbacks import *
    from horovod.tensorflow.keras._legacy_callbacks import __all__
else:
    from horovod._keras3.callbacks import *
    from horovod._keras3.callbacks import __all__
