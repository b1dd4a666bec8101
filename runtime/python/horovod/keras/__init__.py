"""Distributed training with Keras: Keras 3 on JAX, PyTorch or TensorFlow; or Keras 2, which is TensorFlow's.

    import horovod.keras as hvd
    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size())), loss=...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()],
              verbose=2 if hvd.rank() == 0 else 0)

Start it with `KERAS_BACKEND=jax hvdrun -np 4 python script.py`. Without hvdrun a script is a job of one rank.
"""

from horovod.keras._which import IS_LEGACY as _IS_LEGACY

if _IS_LEGACY:
    from horovod.tensorflow.keras import *
    from horovod.tensorflow.keras import __all__
else:
    from horovod._keras3 import *
    from horovod._keras3 import __all__

from horovod.keras import callbacks, elastic  # these of this package, for both
