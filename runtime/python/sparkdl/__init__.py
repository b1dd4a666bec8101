"""HorovodRunner: notebooks written for it run on any Spark, and without Spark on one machine.

    from sparkdl import HorovodRunner

    def train(learning_rate):
        import horovod.torch as hvd
        hvd.init()
        ...

    HorovodRunner(np=2).run(train, learning_rate=0.1)
"""

from sparkdl._horovod_runner import HorovodRunner

__all__ = ["HorovodRunner"]

# Classes of Deep Learning Pipelines, whose package had this name first. It ended with Spark 2.
_ENDED = (
    "DeepImageFeaturizer",
    "DeepImagePredictor",
    "KerasImageFileEstimator",
    "KerasImageFileTransformer",
    "KerasTransformer",
    "TFImageTransformer",
    "TFTransformer",
)


def __getattr__(name: str) -> object:
    if name in _ENDED:
        raise ImportError(
            f"sparkdl.{name} belonged to Deep Learning Pipelines, which has ended; a pandas_udf with a model of Keras or PyTorch does its work"
        )
    raise AttributeError(f"module 'sparkdl' has no attribute {name!r}")
