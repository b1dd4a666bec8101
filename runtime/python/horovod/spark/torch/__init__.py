"""Estimators for Spark DataFrames that train PyTorch models.

    import horovod.spark.torch as hvd

    model = hvd.TorchEstimator(backend=backend, store=store, model=net, optimizer=optimizer, loss=loss, ...).fit(frame)
    model.transform(other)

Names are imported when they are first used: ranks import this package too, and need no Spark.
"""

from typing import Any

__all__ = ["TorchEstimator", "TorchModel"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from horovod.spark.torch import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
