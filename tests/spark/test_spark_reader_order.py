"""The reader's promises over 1,000 random cases: equal steps, every row once an epoch, resume at the very batch.

Needs pyarrow and no Spark.
"""

import random

import numpy
import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed here")
pq = pytest.importorskip("pyarrow.parquet")
fsspec = pytest.importorskip("fsspec")

from horovod.spark.common.dataset import scan  # noqa: E402
from horovod.spark.common.reader import WEIGHT, Reader  # noqa: E402

CASES = 1000
FILES = 40  # data sets; each serves many cases, for writing files takes longest


def written(folder, number):
    """A data set of 1 to 4 files with groups of 1 to 119 rows; `row` counts through all files."""
    rng = random.Random(number)
    files, row = [], 0
    for file in range(rng.randint(1, 4)):
        path = str(folder / f"{number}-{file}.parquet")
        schema = pa.schema([("row", pa.int64()), ("list", pa.list_(pa.float32()))])
        with pq.ParquetWriter(path, schema) as out:
            for _ in range(rng.randint(1, 6)):
                rows = numpy.arange(row, row + rng.randint(1, 119))
                row += len(rows)
                values = numpy.repeat(rows.astype(numpy.float32), 3)
                lists = pa.ListArray.from_arrays(numpy.arange(0, 3 * len(rows) + 1, 3, dtype=numpy.int32), values)
                out.write_table(pa.Table.from_arrays([pa.array(rows), lists], schema=schema))
        files.append(path)
    return scan(fsspec.filesystem("file"), files)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    return [written(folder, number) for number in range(FILES)]


def check_epoch(dataset, size, epoch, **options):
    """Reads one epoch on all ranks; which rows counted, and the batches of each rank."""
    seen, by_rank, steps = [], [], set()
    for rank in range(size):
        with Reader(dataset, rank=rank, size=size, **options) as reader:
            batches = list(reader.epoch(epoch))
            assert len(batches) == reader.steps_per_epoch
            steps.add(len(batches))
        for batch in batches:
            assert len(batch["row"]) == options["batch"] and batch["list"].shape == (options["batch"], 3)
            assert (batch["list"] == batch["row"][:, None].astype(numpy.float32)).all()
            seen += list(batch["row"][batch[WEIGHT] == 1.0] if WEIGHT in batch else batch["row"])
        by_rank.append(batches)
    assert len(steps) == 1
    return seen, by_rank


def same(one, other):
    return len(one) == len(other) and all(
        a.keys() == b.keys() and all((a[name] == b[name]).all() for name in a) for a, b in zip(one, other)
    )


def test_every_row_once_an_epoch_and_equal_steps(datasets):
    rng = random.Random(22)
    ran = 0
    while ran < CASES:
        dataset, size, batch = rng.choice(datasets), rng.randint(1, 8), rng.randint(1, 32)
        pad = rng.random() < 0.5
        if not pad and dataset.rows < size * batch:
            continue
        ran += 1
        options = dict(batch=batch, seed=rng.randint(0, 9), pad=pad, pool=rng.randint(1, 5),
                       ahead=int(rng.random() < 0.25))  # fmt: skip
        options |= dict(shuffle=rng.random() < 0.8, in_memory=rng.random() < 0.2)
        epoch = rng.randint(0, 3)
        seen, by_rank = check_epoch(dataset, size, epoch, **options)
        assert len(seen) == len(set(seen)), options
        if pad:
            assert sorted(seen) == list(range(dataset.rows)), options
        else:
            assert len(seen) == dataset.rows // (size * batch) * size * batch, options
        rank = rng.randrange(size)
        with Reader(dataset, rank=rank, size=size, **options) as reader:
            step = rng.randint(0, reader.steps_per_epoch)
            assert same(list(reader.epoch(epoch, step)), by_rank[rank][step:]), (options, step)


def test_rows_that_are_left_out_differ_from_epoch_to_epoch(tmp_path):
    """Also where all are in one group, as Spark writes small data: 1,000 rows, of which an epoch has 512."""
    path = str(tmp_path / "one.parquet")
    pq.write_table(pa.table({"row": pa.array(range(1000))}), path)
    dataset = scan(fsspec.filesystem("file"), [path])
    often = numpy.zeros(1000, numpy.int64)
    for rank in range(4):
        with Reader(dataset, rank=rank, size=4, batch=128, seed=1) as reader:
            for epoch in range(50):
                for batch in reader.epoch(epoch):
                    often[batch["row"]] += 1
    assert often.sum() == 50 * 512 and often.min() > 5 and often.max() <= 50
