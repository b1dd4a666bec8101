"""Estimators for Spark DataFrames that train Keras 3 models, on JAX, PyTorch or TensorFlow.

    import horovod.spark.keras as hvd

    model = hvd.KerasEstimator(num_proc=2, store=store, model=net, optimizer=optimizer, loss="mse", ...).fit(frame)
    model.transform(other)

Names are imported when they are first used: ranks import this package before they know Keras' backend, and need no Spark.
"""

from typing import Any

__all__ = ["KerasEstimator", "KerasModel"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from horovod.spark.keras import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
