"""What the reader makes of all kinds of columns, what it refuses, how much memory it takes, and that its thread ends.

Needs pyarrow and no Spark.
"""

import datetime
import decimal
import gc
import os
import subprocess
import sys
import threading
import tracemalloc

import numpy
import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed here")
pq = pytest.importorskip("pyarrow.parquet")
fsspec = pytest.importorskip("fsspec")

from horovod.spark.common.columns import INDICES, VALUES, Column  # noqa: E402
from horovod.spark.common.dataset import Dataset, RowGroup, scan  # noqa: E402
from horovod.spark.common.reader import WEIGHT, Reader  # noqa: E402
from patience import PATIENCE  # noqa: E402

LOCAL = fsspec.filesystem("file")


def dataset_of(tmp_path, columns, group=4, name="data.parquet", **known):
    """A file of these Arrow columns, with groups of so many rows."""
    path = str(tmp_path / name)
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return scan(LOCAL, [path], {**dict.fromkeys(columns), **known} if known else None)


def everything(dataset, batch=1, **options):
    with Reader(dataset, rank=0, size=1, batch=batch, **{"shuffle": False, **options}) as reader:
        batches = list(reader.epoch(0))
    return {name: numpy.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def test_numbers_times_texts_and_lists(tmp_path):
    day = datetime.date(2026, 11, 23)
    when = datetime.datetime(2026, 11, 23, 12, 0, 1, 5)
    dataset = dataset_of(tmp_path, {
        "flag": pa.array([True, False, True]), "small": pa.array([1, 2, 3], pa.int8()),
        "money": pa.array([decimal.Decimal("1.25")] * 3), "day": pa.array([day] * 3), "when": pa.array([when] * 3),
        "word": pa.array(["a", "b", "ä"]), "bytes": pa.array([b"x", b"", b"yz"]),
        "kind": pa.array(["u", "v", "u"]).dictionary_encode(),
        "fixed": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int16(), 2)),
        "long": pa.array([[1.0], [2.0], [3.0]], pa.large_list(pa.float64())),
        "flags": pa.array([[True, False]] * 3),
    })  # fmt: skip
    rows = everything(dataset)
    assert rows["flag"].tolist() == [True, False, True] and rows["small"].dtype == numpy.int8
    assert rows["money"].tolist() == [1.25] * 3
    assert rows["day"][0] == numpy.datetime64(day) and rows["when"][0] == numpy.datetime64(when)
    assert rows["word"].tolist() == ["a", "b", "ä"] and rows["bytes"].tolist() == [b"x", b"", b"yz"]
    assert rows["kind"].tolist() == ["u", "v", "u"]
    assert rows["fixed"].tolist() == [[1, 2], [3, 4], [5, 6]] and rows["fixed"].dtype == numpy.int16
    assert rows["long"].tolist() == [[1.0], [2.0], [3.0]] and rows["flags"].shape == (3, 2)


def test_times_as_spark_writes_them_may_be_far_away(tmp_path):
    times = [datetime.datetime(9999, 12, 31), datetime.datetime(1, 1, 1)]
    pq.write_table(pa.table({"when": times}), str(tmp_path / "t.parquet"), use_deprecated_int96_timestamps=True)
    assert everything(scan(LOCAL, [str(tmp_path / "t.parquet")]))["when"].tolist() == times


def test_sparse_vectors_come_out_dense(tmp_path):
    known = Column("v", "sparse", "float32", 4)
    path = str(tmp_path / "sparse.parquet")
    indices = pa.array([[0, 3], [], [2]], pa.list_(pa.int32()))
    pq.write_table(pa.table({INDICES + "v": indices, VALUES + "v": pa.array([[1.0, 2.0], [], [3.0]])}), path)
    rows = everything(scan_one(path, known))
    assert rows["v"].tolist() == [[1, 0, 0, 2], [0, 0, 0, 0], [0, 0, 3, 0]] and rows["v"].dtype == numpy.float32
    with pytest.raises(ValueError, match="'v' has an index outside its 2 values"):
        everything(scan_one(path, Column("v", "sparse", "float32", 2)))


@pytest.mark.parametrize("options", [{}, {"in_memory": True}, {"shuffle": True, "pad": True, "ahead": 0}])
def test_sparse_rows_are_dense_in_their_batch_alone(tmp_path, options):
    """2,000 rows of 10,000 values, which would be 80 MB, with 0, 1 or 2 of them stored."""
    rows, width = 2000, 10_000
    offsets = numpy.concatenate([[0], numpy.cumsum(numpy.arange(rows) % 3)])
    places = numpy.random.default_rng(1).permutation(width)[: offsets[-1]].astype(numpy.int32)
    stored = {INDICES + "v": pa.ListArray.from_arrays(offsets, places),
              VALUES + "v": pa.ListArray.from_arrays(offsets, pa.array(places, pa.float32()))}  # fmt: skip
    path = str(tmp_path / "sparse.parquet")
    pq.write_table(pa.table({"row": pa.array(range(rows)), **stored}), path, row_group_size=300)
    dataset = scan(LOCAL, [path], {"row": None, "v": Column("v", "sparse", "float32", width)})
    seen = []
    with Reader(dataset, rank=0, size=1, batch=30, **options) as reader:
        assert reader.memory_bound < 4 * 2**20
        tracemalloc.start()
        for batch in reader.epoch(0):
            for row, values in zip(batch["row"], batch["v"]):
                expected = sorted(places[offsets[row] : offsets[row + 1]])
                assert numpy.flatnonzero(values).tolist() == expected and values[expected].tolist() == expected
            seen += batch["row"].tolist()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < reader.memory_bound + OWN and len(set(seen)) == (rows if "pad" in options else 1980)


@pytest.mark.parametrize(("group_mb", "pools"), [(8, 4), (128, 3), (256, 1), (512, 1)])
def test_less_is_read_ahead_where_groups_are_large(group_mb, pools):
    """Nothing of the order depends on it."""
    column = Column("x", "list", "float32", 2**18)
    dataset = Dataset((column,), (RowGroup("none", 0, group_mb),))
    with Reader(dataset, rank=0, size=1, batch=1, ahead=2) as reader:
        assert reader.memory_bound == ((4 * pools + 3) * group_mb + 1) * 2**20


def scan_one(path, column):
    return scan(LOCAL, [path], {column.name: column})


def test_numbers_are_read_without_pandas(tmp_path):
    path = str(tmp_path / "data.parquet")
    pq.write_table(pa.table({
        "label": [1, 2, 3], "features": [[1.0, 2.0]] * 3, INDICES + "s": [[0], [], [1]], VALUES + "s": [[1.0], [], [2.0]],
    }), path)  # fmt: skip
    dataset = scan(LOCAL, [path], {"label": None, "features": None, "s": Column("s", "sparse", "float64", 2)})
    code = f"""if True:
        import sys
        from horovod.spark.common.dataset import Dataset
        from horovod.spark.common.reader import Reader
        with Reader(Dataset.from_json({dataset.to_json()!r}), rank=0, size=1, batch=3, shuffle=False) as reader:
            [batch] = reader.epoch(0)
        print(batch["label"].sum(), batch["features"].sum(), batch["s"].sum(), "pandas" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.split() == ["6", "9.0", "3.0", "False"], done.stderr


def test_images_are_decoded_batch_by_batch(tmp_path):
    dataset = dataset_of(
        tmp_path, {"image": pa.array([bytes([i, i + 1]) for i in range(6)]), "label": pa.array(range(6))}
    )
    sizes = []

    def decode(values):
        sizes.append(len(values))
        return numpy.stack([numpy.frombuffer(value, numpy.uint8) for value in values])

    rows = everything(dataset, batch=3, decode={"image": decode})
    assert sizes == [3, 3] and rows["image"].tolist() == [[i, i + 1] for i in range(6)]


def test_the_transform_replaces_a_batch(tmp_path):
    rows = everything(dataset_of(tmp_path, {"a": pa.array([1, 2])}), transform=lambda batch: {"b": batch["a"] * 2})
    assert {name: values.tolist() for name, values in rows.items()} == {"b": [2, 4]}


@pytest.mark.parametrize(("values", "said"), [
    (pa.array([1, None, 3]), "'x' has 1 nulls"),
    (pa.array([[1, 2], None]), "'x' has 1 nulls or empty lists"),
    (pa.array([[1, 2], [3, None]]), "'x' has 1 nulls"),
    (pa.array([[1, 2], [3]]), "'x' have several lengths"),
    (pa.array([{"a": 1}]), "'x' is of type struct"),
    (pa.array([[[1]]]), "'x' is of type list"),
    (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())), "'x' is of type map"),
])  # fmt: skip
def test_what_cannot_be_read_is_refused_by_name_before_it_is_read(tmp_path, values, said):
    with pytest.raises(ValueError, match=said):
        dataset_of(tmp_path, {"x": values})


def test_what_the_footers_do_not_show_is_refused_when_it_is_read(tmp_path):
    path = str(tmp_path / "x.parquet")
    pq.write_table(pa.table({"x": pa.array([1, None, 3])}), path, write_statistics=False)
    dataset = scan(LOCAL, [path])
    with pytest.raises(ValueError, match="'x' has 1 nulls in row group 0 of .*x.parquet; give a value"):
        everything(dataset)
    assert everything(dataset, fill={"x": 7})["x"].tolist() == [1, 7, 3]
    ragged = dataset_of(tmp_path, {"x": pa.array([[1, 2, 3], [4], [5, 6], [7, 8]])}, name="r.parquet")  # two on average
    with pytest.raises(ValueError, match="'x' has lists that are not of 2 values in row group 0"):
        everything(ragged)


def test_files_of_several_types_or_columns_are_refused(tmp_path):
    one, two, three = (str(tmp_path / name) for name in ("1.parquet", "2.parquet", "3.parquet"))
    pq.write_table(pa.table({"x": pa.array([1], pa.int32())}), one)
    pq.write_table(pa.table({"x": pa.array([1.5])}), two)
    pq.write_table(pa.table({"y": pa.array([1])}), three)
    with pytest.raises(ValueError, match="'x' is int32 in .*1.parquet but double in .*2.parquet"):
        scan(LOCAL, [one, two])
    with pytest.raises(ValueError, match="no column 'x' in .*3.parquet, which has y"):
        scan(LOCAL, [one, three])
    with pytest.raises(ValueError, match="'x' is float64, not int32"):
        everything(scan_one(two, Column("x", "number", "int32")))
    (tmp_path / "4.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(ValueError, match="4.parquet cannot be read as Parquet"):
        scan(LOCAL, [str(tmp_path / "4.parquet")])


def test_files_that_change_during_a_fit_are_named(tmp_path):
    dataset = dataset_of(tmp_path, {"x": pa.array(range(8))})
    path = dataset.groups[0].file
    pq.write_table(pa.table({"x": pa.array(range(8))}), path, row_group_size=3)
    with pytest.raises(RuntimeError, match="row group 0 of .* has 3 rows .* was written again"):
        everything(dataset)
    LOCAL.rm(path)
    with pytest.raises(RuntimeError, match="row group 0 of .* cannot be read: FileNotFoundError.*was the data removed"):
        everything(dataset)


def test_bad_arguments_are_refused(tmp_path):
    dataset = dataset_of(tmp_path, {"x": pa.array(range(8))})
    for options, said in (({"rank": 2, "size": 2, "batch": 1}, "rank 2 of 2"),
                          ({"rank": 0, "size": 1, "batch": 0}, "batch=0"),
                          ({"rank": 0, "size": 3, "batch": 3}, "8 rows are not one batch of 3 on each of 3 ranks"),
                          ({"rank": 0, "size": 1, "batch": 1, "columns": ["y"]}, "no column 'y'")):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            Reader(dataset, **options)
    with Reader(dataset, rank=0, size=1, batch=2) as reader, pytest.raises(ValueError, match="step 5 of an epoch of 4"):
        next(reader.epoch(0, 5))


def test_epochs_differ_and_a_seed_repeats_them(tmp_path):
    dataset = dataset_of(tmp_path, {"x": pa.array(range(100))}, group=10)
    one, other = (Reader(dataset, rank=0, size=1, batch=10, seed=seed) for seed in (1, 2))

    def order(reader, epoch):
        return numpy.concatenate([batch["x"] for batch in reader.epoch(epoch)]).tolist()

    assert order(one, 0) == order(one, 0) != order(one, 1)
    assert order(one, 0) != order(other, 0) and sorted(order(other, 0)) == list(range(100))


def test_padding_of_a_rank_that_has_no_row_counts_nothing(tmp_path):
    dataset = dataset_of(tmp_path, {"x": pa.array([5, 6])})
    weights = []
    for rank in range(4):
        with Reader(dataset, rank=rank, size=4, batch=3, pad=True) as reader:
            (batch,) = reader.epoch(0)
            weights.append(batch[WEIGHT].sum())
    assert sorted(weights) == [0, 0, 1, 1]


def test_another_file_system_and_the_manifest_s_text(tmp_path):
    memory = fsspec.filesystem("memory")
    local = dataset_of(tmp_path, {"x": pa.array(range(20))})
    memory.pipe_file("/there/data.parquet", LOCAL.cat_file(local.groups[0].file))
    dataset = Dataset.from_json(scan(memory, ["/there/data.parquet"]).to_json())
    assert dataset.identity == local.identity and dataset.groups != local.groups
    with Reader(dataset, memory, rank=0, size=1, batch=5) as reader:
        assert sorted(numpy.concatenate([batch["x"] for batch in reader.epoch(0)])) == list(range(20))


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "hvd-data"]


def test_the_thread_ends_with_the_epoch_the_reader_or_when_nobody_holds_them(tmp_path):
    dataset = dataset_of(tmp_path, {"x": pa.array(range(1000))}, group=10)
    assert not threads()
    reader = Reader(dataset, rank=0, size=1, batch=5)
    for _ in reader.epoch(0):
        assert len(threads()) == 1
        break
    gc.collect()
    assert not threads()
    batches = reader.epoch(0)
    next(batches)
    reader.close()
    assert not threads()
    batches = Reader(dataset, rank=0, size=1, batch=5).epoch(0)
    next(batches)
    del batches
    gc.collect()
    assert not threads()


# What the process itself may come to need meanwhile: code that is paged in, tables of the interpreter.
OWN = 8 * 2**20
# Reads an epoch in a process of its own; prints the growth of its memory at the peak, the bound and all rows, in bytes.
MEMORY = """
import pathlib, re, sys
import numpy, pyarrow, pyarrow.parquet, fsspec, horovod.data
from horovod.spark.common.dataset import scan
from horovod.spark.common.reader import Reader

pyarrow.set_memory_pool(pyarrow.system_memory_pool())
def kept(name):
    return int(re.search(name + r":\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) * 1024

small, large, ahead = sys.argv[1], sys.argv[2], int(sys.argv[3])
local = fsspec.filesystem("file")
for path in (small, large):
    with Reader(scan(local, [path]), rank=0, size=1, batch=64, ahead=ahead) as reader:
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = kept("VmRSS")
        for batch in reader.epoch(0):
            pass
        print(kept("VmHWM") - before, reader.memory_bound, reader.steps_per_epoch * 64 * 1024 * 4)
"""


@pytest.mark.parametrize("ahead", [0, 1])
def test_memory_stays_within_its_formula(tmp_path, ahead):
    """32 groups of 4 MiB, of which at most 14 may be in memory."""
    paths = [str(tmp_path / name) for name in ("small.parquet", "large.parquet")]
    values = pa.array(numpy.random.default_rng(0).random(1024 * 1024, numpy.float32))
    lists = pa.ListArray.from_arrays(numpy.arange(0, 1024 * 1024 + 1, 1024, dtype=numpy.int32), values)
    for path, groups in zip(paths, (2, 32)):
        with pq.ParquetWriter(path, pa.schema([("x", lists.type)]), use_dictionary=False) as out:
            for _ in range(groups):
                out.write_table(pa.table({"x": lists}))
    # What is freed goes back to the system at once: it is the reader's memory that counts, not what malloc keeps.
    exact = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run([sys.executable, "-c", MEMORY, *paths, str(ahead)], env={**os.environ, **exact},
                          capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
    assert done.returncode == 0, done.stderr
    grown, bound, all_rows = map(int, done.stdout.splitlines()[1].split())
    assert bound < all_rows / 2
    print(f"{grown / 2**20:.0f} MiB grown, {bound / 2**20:.0f} MiB is the bound, {all_rows / 2**20:.0f} MiB the rows")
    assert grown <= bound + OWN, f"{grown} bytes grown, {bound} is the bound"
