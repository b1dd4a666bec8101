"""An estimator for Spark DataFrames that trains a LightningModule by Lightning's own Trainer.

    import horovod.spark.lightning as hvd

    model = hvd.TorchEstimator(num_proc=2, store=store, model=module, input_shapes=[[-1, 4]], ...).fit(frame)
    model.transform(other)

Names are imported when they are first used: ranks import this package too, and need no Spark.
"""

from typing import Any

__all__ = ["TorchEstimator", "TorchModel"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from horovod.spark.lightning import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
