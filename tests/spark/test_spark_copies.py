"""Copies of frames in a store: when one is made, used again, read by fit_on_parquet(), and removed."""


import pathlib

import numpy
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed here")

from horovod.spark.common import copies, dataset, materialise  # noqa: E402
from horovod.spark.common.materialise import prepare, release  # noqa: E402
from horovod.spark.common.reader import Reader  # noqa: E402
from horovod.spark.common.store import Store  # noqa: E402


def rows_of(data, store):
    """All rows by column, in the order of the first column."""
    with Reader(data, store, rank=0, size=1, batch=1, shuffle=False) as reader:
        batches = list(reader.epoch(0))
    rows = {name: numpy.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    order = numpy.argsort(next(iter(rows.values())))
    return {name: values[order].tolist() for name, values in rows.items()}


def test_parquet_that_spark_reads_under_other_names_or_types_is_copied(spark, store, tmp_path):
    import pyarrow
    import pyarrow.parquet

    source = tmp_path / "source"
    source.mkdir()
    for number, kind in enumerate((pyarrow.int32(), pyarrow.int64())):
        table = pyarrow.table({"Age": pyarrow.array([2.0 * number, 2.0 * number + 1]), "n": pyarrow.array([3, 4], kind)})
        pyarrow.parquet.write_table(table, str(source / f"{number}.parquet"))
    renamed = prepare(spark.read.schema("age double").parquet(str(source)), store, columns=["age"])
    assert renamed.made and rows_of(renamed.train, store) == {"age": [0, 1, 2, 3]}
    widened = prepare(spark.read.schema("n long").parquet(str(source)), store, columns=["n"])
    assert widened.made and rows_of(widened.train, store) == {"n": [3, 3, 4, 4]}


def test_a_frame_with_other_names_settings_or_values_of_its_moment_is_copied_again(spark, store):
    raw = spark.range(0, 4, 1, 1).selectExpr("double(id) as x", "2.0d * id as y1", "-3.0d * id as y2")

    def path(frame):
        return prepare(frame, store, columns=["x"], label_columns=["label"], partitions_per_process=1).path

    one, other = (raw.withColumnRenamed(name, "label") for name in ("y1", "y2"))
    assert len({path(one), path(other), path(raw.toDF("x", "z", "label")), path(raw.toDF("x", "label", "z"))}) == 4
    assert path(raw.withColumnRenamed("y1", "label")) == path(one)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        tokyo = path(one)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert path(one) != tokyo
    past = one.where("timestamp_seconds(x) < current_timestamp()")
    assert path(past) != path(past)
    drawn = [one.selectExpr("x", "label + rand(7) as label") for _ in range(2)]
    assert path(drawn[0]) == path(drawn[0]) != path(drawn[1])  # a search fits one frame several times


def test_files_that_a_program_has_written_are_what_fit_on_parquet_reads(spark, store):
    import pyarrow
    import pyarrow.parquet

    frame = spark.range(0, 20, 1, 2).selectExpr("id", "id > 15 as v")
    prepare(frame, store, columns=["id"], validation="v")
    val = pathlib.Path(store.get_localized_path(store.get_val_data_path()))
    other = (val / dataset.MANIFEST).read_text()
    prepare(frame.where("id > 2"), store, columns=["id"], validation="v")
    (val / dataset.MANIFEST).write_text(other)  # as of a driver that shares the store and was slower
    assert dataset.open_prepared(store).train.rows == 13 and dataset.open_prepared(store).validation is None
    prepare(frame, store, columns=["id"], validation="v")
    assert (dataset.open_prepared(store).train.rows, dataset.open_prepared(store).validation.rows) == (16, 4)
    train = store.get_localized_path(store.get_train_data_path())
    pyarrow.parquet.write_table(pyarrow.table({"x": [1.0, 2.0, 3.0]}), f"{train}/part.parquet")
    prepare(frame.where("id > 1"), store, columns=["id"], validation="v")
    read = dataset.open_prepared(store)
    assert rows_of(read.train, store) == {"x": [1, 2, 3]} and read.validation is None
    assert store.get_parquet_dataset(store.get_train_data_path()).read().column_names == ["x"]


def test_a_later_driver_removes_the_copies_that_nobody_uses(spark, store, monkeypatch):
    place = store.get_train_data_path()

    def copied():
        monkeypatch.setattr(materialise, "_copies", [])  # as in another process
        return prepare(spark.range(0, 4, 1, 1), store, columns=["id"], partitions_per_process=1)

    def stand():
        return [store.exists(f"{made.path}/train/{dataset.MANIFEST}") for made in driven]

    driven = [copied()]
    release(store, driven[0])
    store.write_text(f"{place}/0123456789ab/rows/note.txt", "of somebody else")
    driven.append(copied())  # this driver is killed in its fit
    assert stand() == [False, True] and not store.exists(driven[0].path)
    driven.append(copied())
    release(store, driven[2])
    with copies.used(store, dataset.open_prepared(store).train.copy_path):  # as fit_on_parquet() does
        driven.append(copied())
        release(store, driven[3])
        assert stand() == [False, True, True, True]
    monkeypatch.setattr(copies, "_LONGEST_USE", 0)
    driven.append(copied())
    assert stand() == [False, False, False, False, True] and store.exists(f"{place}/0123456789ab/rows/note.txt")


def test_a_copy_is_used_or_removed_but_never_both(tmp_path, monkeypatch):
    store, path = Store.create(str(tmp_path / "store")), str(tmp_path / "store/copy")
    manifest = f"{path}/train/{dataset.MANIFEST}"
    copies.end(store, copies.begin(store, path))
    store.write_text(manifest, "said")
    removed, marks = store.remove, []

    def remove(path):
        if path == manifest:
            marks.append(copies.use(store, path.rsplit("/", 2)[0]))  # before the manifest goes
        removed(path)

    monkeypatch.setattr(store, "remove", remove)
    copies.remove(store, path)
    assert marks[0] and store.read_text(manifest) == "said"
    copies.end(store, marks[0])
    monkeypatch.setattr(store, "remove", removed)
    monkeypatch.setattr(copies, "_write_mark", lambda *_: removed(manifest) or f"{path}/mark")
    assert copies.use(store, path) is None  # where the manifest went first
    copies.remove(store, path)
    copies.remove(store, path)  # which is gone
    assert not store.exists(path)
