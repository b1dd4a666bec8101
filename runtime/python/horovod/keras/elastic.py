"""Training that goes on after a failed collective, for the Keras that is installed."""

import keras as _keras

if int(_keras.__version__.partition(".")[0]) < 3:
    from horovod.tensorflow.keras.elastic import *
    from horovod.tensorflow.keras.elastic import __all__
else:
    from horovod._keras3.elastic import *
    from horovod._keras3.elastic import __all__
