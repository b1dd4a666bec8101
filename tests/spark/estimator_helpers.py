"""What tests of the estimators share: small data, and a backend that trains in the test's own process."""

import os

import numpy


class Here:
    """A backend of one process, this one. It is the least that an estimator needs of a backend."""

    def run(self, fn, args=(), kwargs=None, env=None):
        return [fn(*args, **(kwargs or {}))]

    def num_processes(self):
        return 1


class Lost:
    """A backend whose processes train, and are lost before their driver hears of it."""

    def __init__(self, backend):
        self._backend = backend
        self.num_processes = backend.num_processes

    def run(self, *args, **kwargs):
        self._backend.run(*args, **kwargs)
        raise RuntimeError("rank 0 was killed")


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


def store_of(tmp_path, rows=64, validation=0):
    """A store with Parquet that pyarrow writes, for fit_on_parquet() without Spark."""
    import pyarrow.parquet

    from horovod.spark.common.store import LocalStore

    store = LocalStore(str(tmp_path / "store"))
    for count, url in ((rows, store.get_train_data_path()), (validation, store.get_val_data_path())):
        if count:
            features, labels, _ = zip(*points(count))
            folder = store.get_localized_path(url)
            os.makedirs(folder)
            table = pyarrow.table({"features": pyarrow.array(features, pyarrow.list_(pyarrow.float32())), "label": labels})
            pyarrow.parquet.write_table(table, f"{folder}/part.parquet")
    return store
