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
