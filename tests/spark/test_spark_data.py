"""From a DataFrame to batches, on real executors: copies, splits, plain scans, and what is refused before any training."""

import numpy
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed here")

from horovod.spark.common.dataset import open_prepared, prepare, release  # noqa: E402
from horovod.spark.common.reader import Reader  # noqa: E402
from horovod.spark.common.store import Store  # noqa: E402


@pytest.fixture
def store(tmp_path):
    return Store.create(str(tmp_path / "store"))


def rows_of(dataset, store, **options):
    """All rows by column, as one rank reads them without shuffling."""
    with Reader(dataset, store, rank=0, size=1, batch=1, shuffle=False, **options) as reader:
        batches = list(reader.epoch(0))
    return {name: numpy.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def test_a_copy_has_every_row_once_in_one_of_the_two_parts(spark, store):
    frame = spark.range(0, 1000, 1, 4).selectExpr("id", "array(float(id), float(id + 1)) as features", "id % 3 as label")
    made = prepare(frame, store, columns=["features"], label_columns=["label", "id"], validation=0.2, num_proc=2,
                   partitions_per_process=2, seed=7)  # fmt: skip
    train, validation = rows_of(made.train, store), rows_of(made.validation, store)
    assert sorted([*train["id"], *validation["id"]]) == list(range(1000))
    assert 100 < len(validation["id"]) < 300 and made.train.rows == len(train["id"])
    assert train["features"].dtype == numpy.float32 and (train["features"][:, 1] == train["id"] + 1).all()
    assert open_prepared(store, path=made.path) == made
    again = open_prepared(store)
    assert again.train == made.train and again.validation == made.validation
