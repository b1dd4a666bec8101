"""Callbacks for model.fit, for the Keras that is installed."""

import keras as _keras

if int(_keras.__version__.partition(".")[0]) < 3:
    from horovod.tensorflow.keras.callbacks import *
    from horovod.tensorflow.keras.callbacks import __all__
else:
    from horovod._keras3.callbacks import *
    from horovod._keras3.callbacks import __all__
