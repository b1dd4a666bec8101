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


class Asked(Here):
    """A backend that starts nothing, and keeps the plan that its ranks would get."""

    plan = None

    def run(self, fn, args=(), kwargs=None, env=None):
        from horovod.spark.common import orders

        self.plan = orders.receive(*args[:2])
        raise InterruptedError("this backend starts nothing")


def own_module(**attributes):
    """A data module with what the manual asks for and no more: 4 batches of 8 rows, and 1 for validation."""
    from horovod.spark.common.datamodule import DataModule

    def batches(count):
        features, labels, _ = map(numpy.array, zip(*points(8 * count)))
        return [{"features": f.astype("float32"), "label": l} for f, l in zip(numpy.split(features, count), numpy.split(labels, count))]

    class Own(DataModule):
        def train_data(self, epoch, step):
            return iter(batches(4)[step:])

        def val_data(self):
            return iter(batches(1))

    for name, value in attributes.items():
        setattr(Own, name, value)
    return Own


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
