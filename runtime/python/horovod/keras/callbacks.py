"""Callbacks for model.fit, for the Keras that is installed."""

from horovod.keras._which import IS_LEGACY as _IS_LEGACY

if _IS_LEGACY:
    from horovod.tensorflow.keras.callbacks import *
    from horovod.tensorflow.keras.callbacks import __all__
else:
    from horovod._keras3.callbacks import *
    from horovod._keras3.callbacks import __all__
