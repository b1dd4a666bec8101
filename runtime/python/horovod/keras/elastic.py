"""Training that goes on after a failed collective, for the Keras that is installed."""

from horovod.keras._which import IS_LEGACY as _IS_LEGACY

if _IS_LEGACY:
    from horovod.tensorflow.keras.elastic import *
    from horovod.tensorflow.keras.elastic import __all__
else:
    from horovod._keras3.elastic import *
    from horovod._keras3.elastic import __all__
