"""What tests of the estimators share: small data, and a backend that trains in the test's own process."""

import numpy


class Here:
    """A backend of one process, this one. It is the least that an estimator needs of a backend."""

    def run(self, fn, args=(), kwargs=None, env=None):
        return [fn(*args, **(kwargs or {}))]

    def num_processes(self):
        return 1


def points(count, seed=0):
    """Rows (features of 4, label 0 or 1, weight) that a linear model tells apart."""
    numbers = numpy.random.default_rng(seed)
    features = numbers.normal(size=(count, 4)).astype(numpy.float32)
    labels = (features @ numpy.array([1.0, -2.0, 0.5, 1.5]) > 0).astype(int)
    return [(f.tolist(), int(label), 1.0) for f, label in zip(features, labels)]


def frame_of(spark, rows, partitions=2):
    return (
        spark.createDataFrame(rows, "features array<float>, label bigint, weight float").repartition(partitions).cache()
    )
