"""From a DataFrame to batches, on real executors: copies, splits, plain scans, and what is refused before training."""

import decimal
import os
import pathlib
import shutil
import subprocess
import sys

import numpy
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed here")

from horovod.spark.common import materialise, plans, store_check  # noqa: E402
from horovod.spark.common.dataset import open_prepared  # noqa: E402
from horovod.spark.common.materialise import prepare, release  # noqa: E402
from horovod.spark.common.reader import Reader  # noqa: E402
from horovod.spark.common.store import Store  # noqa: E402
from patience import PATIENCE  # noqa: E402


def rows_of(dataset, store, **options):
    """All rows by column, as one rank reads them without shuffling."""
    with Reader(dataset, store, rank=0, size=1, batch=1, shuffle=False, **options) as reader:
        batches = list(reader.epoch(0))
    return {name: numpy.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def folders(store, place=None):
    """Of the copies in the store."""
    root = pathlib.Path(store.get_localized_path(store.get_train_data_path(place)))
    return sorted(entry.name for entry in root.iterdir() if entry.is_dir() and (entry / "rows").exists())


def test_a_copy_has_every_row_once_in_one_of_the_two_parts(spark, store):
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        "id", "array(float(id), float(id + 1)) as features", "id % 3 as label"
    )
    made = prepare(frame, store, columns=["features"], label_columns=["label", "id"], validation=0.2, num_proc=2,
                   partitions_per_process=1, seed=7)  # fmt: skip
    train, validation = rows_of(made.train, store), rows_of(made.validation, store)
    assert sorted([*train["id"], *validation["id"]]) == list(range(1000))
    assert 100 < len(validation["id"]) < 300 and made.train.rows == len(train["id"])
    assert train["features"].dtype == numpy.float32 and (train["features"][:, 1] == train["id"] + 1).all()
    assert len({group.file for group in made.train.groups}) == 2
    assert open_prepared(store, path=made.path) == made
    again = open_prepared(store)
    assert again.train == made.train and again.validation == made.validation
    for path, part in ((store.get_train_data_path(), train), (store.get_val_data_path(), validation)):
        table = store.get_parquet_dataset(path).read()
        assert store.is_parquet_dataset(path) and set(table.column_names) == {"features", "label", "id"}
        assert sorted(table["id"].to_pylist()) == sorted(part["id"])


def test_rows_that_are_neither_for_validation_nor_for_training_are_left_out(spark, store):
    frame = spark.range(0, 10, 1, 2).selectExpr("id", "if(id = 3, null, if(id = 4, -1, if(id > 6, 1, 0))) as v")
    made = prepare(frame, store, columns=["id"], validation="v")
    assert sorted(rows_of(made.validation, store)["id"]) == [7, 8, 9]
    assert sorted(rows_of(made.train, store)["id"]) == [0, 1, 2, 5, 6]


def test_a_column_says_which_rows_are_for_validation(spark, store):
    for expression in ("id > 6", "if(id > 6, 1, 0)", "if(id > 6, 0.5, 0)"):
        frame = spark.range(0, 10, 1, 2).selectExpr("id", f"{expression} as v")
        if "0.5" in expression:
            frame = frame.withColumn("v", frame["v"].cast("double"))
        made = prepare(frame, store, columns=["id"], validation="v")
        assert sorted(rows_of(made.validation, store)["id"]) == [7, 8, 9]
        assert sorted(rows_of(made.train, store)["id"]) == list(range(7))


def test_vectors_and_types_of_spark_arrive_in_numpy(spark, store):
    from pyspark.ml.linalg import Vectors

    rows = [(Vectors.dense([1.0, 0.0]), Vectors.sparse(3, {1: 2.0}), decimal.Decimal("1.50"), True, "a.b", 1.0),
            (Vectors.sparse(2, {1: 3.0}), Vectors.dense([1.0, 2, 3]), decimal.Decimal("2.25"), False,
             "c", None)]  # fmt: skip
    frame = _frame(spark, rows)
    for compress in (False, True):
        made = prepare(frame, store, columns=["dense", "sparse", "money", "flag", "a.word", "n"], fill={"n": -1.0},
                       compress_sparse=compress, partitions_per_process=1)  # fmt: skip
        got = rows_of(made.train, store)
        order = numpy.argsort(got["money"])
        assert got["dense"][order].tolist() == [[1, 0], [0, 3]] and got["dense"].dtype == numpy.float32
        assert got["sparse"][order].tolist() == [[0, 2, 0], [1, 2, 3]]
        assert got["money"][order].tolist() == [1.5, 2.25] and got["flag"][order].tolist() == [True, False]
        assert got["a.word"][order].tolist() == ["a.b", "c"] and got["n"][order].tolist() == [1.0, -1.0]
        assert {column.kind for column in made.train.columns} >= {"sparse" if compress else "vector"}


def _frame(spark, rows):
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql import types as T

    kinds = {"dense": VectorUDT(), "sparse": VectorUDT(), "money": T.DecimalType(9, 2), "flag": T.BooleanType(),
             "a.word": T.StringType(), "n": T.DoubleType()}  # fmt: skip
    return spark.createDataFrame(rows, T.StructType([T.StructField(name, kind) for name, kind in kinds.items()]))


def test_a_plain_scan_of_parquet_is_not_copied(spark, store, tmp_path):
    source = str(tmp_path / "a source")
    spark.range(0, 100, 1, 3).selectExpr("id", "array(id, id) as two", "float(id) as f").write.parquet(source)
    scan = spark.read.parquet(source)
    made = prepare(scan, store, columns=["two"], label_columns=["f"])
    assert not made.made and not folders(store)
    assert {os.path.dirname(group.file) for group in made.train.groups} == {source}
    assert sorted(rows_of(made.train, store)["f"]) == list(range(100))
    assert open_prepared(store, path=made.path).train == made.train
    release(store, made)
    assert not store.exists(made.path) and len(list(pathlib.Path(source).glob("*.parquet"))) == 3
    # More than a scan: other rows, other values, two parts, or a copy that is asked for.
    for frame, options in ((scan.where("id > 5"), {}), (scan.selectExpr("two", "f + 1 as f"), {}), (scan.limit(50), {}),
                           (scan, {"validation": 0.5}), (scan, {"cache": "always"})):  # fmt: skip
        assert prepare(frame, store, columns=["two"], label_columns=["f"], **options).made


def test_row_groups_are_judged_by_what_they_need_in_memory(spark, store, tmp_path, monkeypatch):
    """Flags that Parquet packs to nothing, with the row limit of Spark 4.1 or later; and images of which ten are a group."""
    flags = spark.range(0, 400_000, 1, 1).selectExpr(*[f"double(id % 7 = {n}) as f{n}" for n in range(5)])
    images = spark.range(0, 40, 1, 1).selectExpr("transform(sequence(1, 200000), i -> float(hash(id, i))) as image")
    for frame, row_bytes in ((flags, 40), (images, 800_000))[tuple(map(int, spark.version.split(".")[:2])) < (4, 1) :]:
        made = prepare(frame, store, columns=frame.columns)
        rows = [group.rows for group in made.train.groups]
        assert sum(rows) == frame.count() and max(rows) * row_bytes < 10 * 2**20, rows
    source = str(tmp_path / "source")
    flags.write.parquet(source)
    scan = spark.read.parquet(source)
    assert not prepare(scan, store, columns=flags.columns).made
    monkeypatch.setattr(materialise, "_LARGEST_GROUP_BYTES", 10 * 2**20)
    assert os.path.getsize(next(pathlib.Path(source).glob("*.parquet"))) < 2**20
    assert prepare(scan, store, columns=flags.columns).made


def test_tables_of_a_catalog_with_partitions_are_copied(spark, store, tmp_path):
    """Spark lists their files later than that of a plain scan."""
    rows = spark.range(40).selectExpr("id", "float(id) as f", "id % 2 as part")
    rows.write.option("path", str(tmp_path / "table")).partitionBy("part").saveAsTable("hvd_parts")
    try:
        for options in ({}, {"validation": 0.5}):
            made = prepare(spark.table("hvd_parts"), store, columns=["id"], label_columns=["f"], **options)
            assert made.made and made.train.rows + (made.validation.rows if options else 0) == 40
    finally:
        spark.sql("drop table hvd_parts")


def test_an_equal_plan_is_copied_once_and_changed_files_again(spark, store, tmp_path):
    source = str(tmp_path / "source")

    def frame():
        return spark.read.parquet(source).where("id > 1")

    spark.range(10).write.parquet(source)
    one, other = prepare(frame(), store, columns=["id"]), prepare(frame(), store, columns=["id"])
    assert one.path == other.path and len(folders(store)) == 1
    assert prepare(frame(), store, columns=["id"], cache="never").path != one.path
    spark.range(20).write.mode("overwrite").parquet(source)
    changed = prepare(frame(), store, columns=["id"])
    assert changed.train.rows == 18 and one.train.rows == 8
    for prepared in (one, other):
        release(store, prepared)
    assert one.path.rsplit("/", 1)[1] not in folders(store)
    release(store, changed)
    assert changed.path.rsplit("/", 1)[1] in folders(store)  # the newest stays for the next fit
    store.remove(changed.path)
    assert prepare(frame(), store, columns=["id"]).path != changed.path


@pytest.mark.parametrize(("expressions", "options", "said"), [
    (["id"], {"columns": ["x"]}, "no column 'x'; it has id"),
    (["if(id = 3, null, id) as x"], {"columns": ["x"]}, "'x' has 1 nulls"),
    (["if(id = 3, null, array(1, 2)) as x"], {"columns": ["x"]}, "'x' has 1 nulls"),
    (["if(id = 3, array(1), array(1, 2)) as x"], {"columns": ["x"]}, "column 'x' have from 1 to 2 values"),
    (["if(id < 5, array(1), array(1, 2, 3)) as x"], {"columns": ["x"]}, "column 'x' have from 1 to 3 values"),
    (["struct(id) as x"], {"columns": ["x"]}, "'x' is of type struct<id:bigint>"),
    (["array(array(id)) as x"], {"columns": ["x"]}, "'x' is of type array<array<bigint>>"),
    (["map(id, id) as x"], {"columns": ["x"]}, "'x' is of type map<bigint,bigint>"),
    (["id"], {"columns": ["id"], "validation": 1.5}, "validation=1.5: it must be a fraction"),
    (["id"], {"columns": ["id"], "validation": "v"}, "validation='v': the DataFrame has no such column"),
    (["id", "string(id) as v"], {"columns": ["id"], "validation": "v"}, "the column is string"),
    (["id", "true as v"], {"columns": ["id"], "validation": "v"}, "no rows for training with validation='v'"),
    (["id", "false as v"], {"columns": ["id"], "validation": "v"}, "no rows for validation with validation='v'"),
    (["id"], {"columns": ["id"], "cache": "often"}, "cache must be one of"),
])  # fmt: skip
def test_bad_input_is_one_error_by_name_and_leaves_nothing(spark, store, expressions, options, said):
    with pytest.raises(ValueError, match=said):
        prepare(spark.range(0, 10, 1, 2).selectExpr(*expressions), store, **options)
    assert not store.exists(store.get_train_data_path()) or not folders(store)


def test_a_store_that_not_all_see_is_refused_before_anything_is_written(spark, tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match="the driver does not see what Spark has written|Spark cannot write there"):
        Store.create("memory://nowhere").check_shared(spark)
    here = pathlib.Path.cwd()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RuntimeError, match="the driver cannot write there: .*a local path must be a mount"):
        Store.create(str(tmp_path / "file" / "store")).check_shared(spark)
    # A path that is another folder in every process, as a path of one machine is on another machine. Spark's folder is
    # this checkout, so the store there has a name of its own and is removed at the end.
    place = f"/proc/self/cwd/{tmp_path.name}"
    own = Store.create(place)
    try:
        with pytest.raises(RuntimeError, match=f"{tmp_path.name}.*Spark"):
            own.check_shared(spark)
        assert list((tmp_path / tmp_path.name).iterdir()) == []
        own.write_text(f"{place}/check/driver", "word")
        answers = store_check._ask_executors(own, spark, f"{place}/check", "word")
    finally:
        shutil.rmtree(here / tmp_path.name)
    assert answers and all(
        "does not see what the driver has written there: FileNotFound" in answer for answer in answers
    )


# A session whose executors have another Python path: a pyarrow that cannot be imported comes first there.
WITHOUT_ARROW = """
import sys
from pyspark.sql import SparkSession
session = (SparkSession.builder.master("local-cluster[1,1,512]").config("spark.ui.enabled", "false")
           .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
           .config("spark.executor.memory", "512m").config("spark.executorEnv.PYTHONPATH", sys.argv[1]).getOrCreate())
session.sparkContext.setLogLevel("OFF")
from horovod.spark.common.store import Store
try:
    Store.create(sys.argv[2]).check_shared(session)
except RuntimeError as error:
    print("refused:", error)
session.stop()
"""


def test_an_executor_without_pyarrow_is_named(spark, tmp_path):
    broken = tmp_path / "path"
    broken.mkdir()
    (broken / "pyarrow.py").write_text("raise ImportError('there is no pyarrow here')\n")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([sys.executable, "-c", WITHOUT_ARROW, str(broken), str(tmp_path / "store")], env=environment,
                          capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
    assert (
        "cannot import pyarrow, which reads the data (there is no pyarrow here); pip install it there" in done.stdout
    ), done.stdout + done.stderr[-2000:]


def test_prepared_data_has_a_number_by_which_it_is_asked_for(spark, store):
    """Horovod's prepare_data(): places of the store are numbered, and given again when nobody uses them."""
    from horovod.spark.common import util

    util.clear_training_cache()
    frames = [spark.range(0, count, 1, 2).selectExpr("id", "id * 2 as y").cache() for count in (20, 30, 40)]

    def prepared(frame):
        return util.prepare_data(2, store, frame, label_columns=["y"], feature_columns=["id"])

    with prepared(frames[0]) as first:
        with prepared(frames[1]) as second:
            assert (first, second) == (0, 1)
            assert [util.get_dataset_properties(place)[0] for place in (first, second)] == [20, 30]
            assert sorted(rows_of(open_prepared(store, second).train, store)["id"]) == list(range(30))
    copied = open_prepared(store, 0)
    with prepared(frames[0]) as again:
        assert again == 0 and open_prepared(store, 0) == copied and len(folders(store, 0)) == 1
    with prepared(frames[2]) as third:
        assert third == 0 and util.get_dataset_properties(third)[:2] == (40, 0)
    with pytest.raises(ValueError, match="no data with the number 7"):
        util.get_dataset_properties(7)


def test_a_cluster_that_compresses_all_text_has_a_store_too(spark, store):
    spark.conf.set("mapreduce.output.fileoutputformat.compress", "true")
    try:
        store.check_shared(spark)
    finally:
        spark.conf.unset("mapreduce.output.fileoutputformat.compress")


class Blobs:
    """Azure's files: a path has the container, and not the account."""

    @staticmethod
    def _strip_protocol(url):
        authority, _, path = url.partition("://")[2].partition("/")
        return f"{authority.partition('@')[0]}/{path}"


class Nodes:
    """Hadoop's: no path has the name node."""

    @staticmethod
    def _strip_protocol(url):
        return "/" + url.partition("://")[2].partition("/")[2]


@pytest.mark.parametrize(("files", "place", "completed", "here", "elsewhere"), [
    (Blobs, "abfs://c@mine.dfs.core.windows.net/x", "abfss://c@mine.dfs.core.windows.net/x",
     "abfss://other@mine.dfs.core.windows.net/a", "abfss://c@theirs.dfs.core.windows.net/a"),
    (Nodes, "hdfs:///x", "hdfs://data1:8020/x", "hdfs://data1:8020/data", "hdfs://data2:8020/data"),
])  # fmt: skip
def test_parquet_of_another_account_or_name_node_is_copied(monkeypatch, files, place, completed, here, elsewhere):
    store = Store.create(place)
    store._fs = files
    monkeypatch.setattr(materialise.plans, "qualified", lambda frame, url: completed)
    monkeypatch.setattr(materialise.plans, "plain_parquet", lambda frame, names: urls)
    found = []
    monkeypatch.setattr(materialise.data, "scan", lambda fs, files, columns: found.append(files) or _forbidden())
    for urls in ([elsewhere], [here, elsewhere]):
        assert materialise._scanned(None, store, {}) is None
    assert found == []
    urls = [here]
    # Nor does it matter what a file system raises where this driver may not read.
    assert materialise._scanned(None, store, {}) is None and len(found) == 1


def _forbidden():
    raise Exception("HttpResponseError: 403")


def test_spark_says_where_a_url_is(spark, tmp_path):
    assert plans.qualified(spark.range(1), str(tmp_path)) == f"file:{tmp_path}"
