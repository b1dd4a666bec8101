"""Modules that give a training loop its data, and functions of pandas frames on batches. Needs pyarrow and no Spark."""

import logging
import threading

import numpy
import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed here")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("fsspec")

from horovod.spark.common.dataset import open_prepared  # noqa: E402
from horovod.spark.common.datamodule import (  # noqa: E402
    ArrowDataModule,
    NVTabularDataModule,
    PetastormDataModule,
    pandas_transform,
)
from horovod.spark.common.reader import WEIGHT  # noqa: E402
from horovod.spark.common.store import Store  # noqa: E402


@pytest.fixture
def folders(tmp_path):
    """Parquet files as another program writes them: 20 rows for training, 5 for validation."""
    store = Store.create(str(tmp_path))
    for path, rows in ((store.get_train_data_path(), 20), (store.get_val_data_path(), 5)):
        store.fs.makedirs(store.get_localized_path(path))
        pq.write_table(pa.table({"x": pa.array(range(rows))}), store.get_localized_path(path) + "/part.parquet")
    return store


def rows(batches):
    return sorted(int(x) for batch in batches for x in batch["x"][batch.get(WEIGHT, numpy.ones(len(batch["x"]))) > 0])


@pytest.mark.parametrize("by_folder", [True, False])
def test_two_ranks_share_both_parts(folders, by_folder):
    prepared = open_prepared(folders)
    train, val = prepared.train, prepared.validation
    if by_folder:
        train, val = folders.get_train_data_path(), folders.get_val_data_path()
    seen, validated = [], []
    for rank in range(2):
        options = {} if by_folder else {"store": folders}
        with ArrowDataModule(train, val, train_batch_size=5, val_batch_size=2, cur_shard=rank, shard_count=2, seed=3,
                             **options) as module:  # fmt: skip
            assert (module.train_steps, module.val_steps) == (2, 2)
            first = list(module.train_data(0))
            seen += rows(first)
            (resumed,) = module.train_data(0, 1)
            assert (resumed["x"] == first[1]["x"]).all()
            validated += rows(module.val_data())
    assert sorted(seen) == list(range(20)) and sorted(validated) == list(range(5))


def test_fewer_steps_leave_no_thread(folders):
    prepared = open_prepared(folders)
    with ArrowDataModule(prepared.train, None, train_batch_size=2, steps_per_epoch_train=3, store=folders) as module:
        assert module.train_steps == 3 and len(list(module.train_data())) == 3
        assert not [thread for thread in threading.enumerate() if thread.name == "hvd-data"]
        assert module.val_steps == 0 and list(module.val_data()) == []
    with pytest.raises(RuntimeError, match="ArrowDataModule is closed"):
        module.train_data()


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_epoch_of_fewer_steps_goes_on_where_the_last_one_ended(folders, shuffle):
    """20 rows are 10 steps; epochs of 4 steps see all of them in 2.5 epochs, and each row again in the next 2.5."""
    with ArrowDataModule(open_prepared(folders).train, None, train_batch_size=2, steps_per_epoch_train=4, store=folders,
                         shuffle=shuffle, verbose=0) as module:  # fmt: skip
        batches = [batch for epoch in range(5) for batch in module.train_data(epoch)]
        assert rows(batches[:10]) == rows(batches[10:]) == list(range(20))
        assert rows(module.train_data(3, 1)) == rows(batches[13:16])


def test_names_of_horovod(folders, caplog):
    with caplog.at_level(logging.WARNING, "horovod.spark"):
        with PetastormDataModule(open_prepared(folders).train, store=folders, train_batch_size=20) as module:
            assert rows(module.train_data()) == list(range(20))
    assert "PetastormDataModule reads with pyarrow here" in caplog.text
    with pytest.raises(ValueError, match="NVTabularDataModule is not there"):
        NVTabularDataModule("anywhere")


def test_a_function_of_a_pandas_frame_edits_and_removes_columns():
    pytest.importorskip("pandas")

    def function(frame):
        frame["twice"] = frame["x"] * 2
        frame["pair"] = [numpy.array([x, x]) for x in frame["x"]]
        return frame

    transform = pandas_transform(function, [("twice", numpy.float32, (), False)], ["x"])
    made = transform({"x": numpy.arange(3), "list": numpy.ones((3, 2)), WEIGHT: numpy.ones(3)})
    assert sorted(made) == [WEIGHT, "list", "pair", "twice"]
    assert made["twice"].dtype == numpy.float32 and made["pair"].shape == (3, 2) and made["list"].shape == (3, 2)
    with pytest.raises(ValueError, match="made 2 rows of 3"):
        pandas_transform(lambda frame: frame[:2])({"x": numpy.arange(3), WEIGHT: numpy.ones(3)})
    with pytest.raises(ValueError, match="several shapes in column 'y'"):
        pandas_transform(lambda frame: frame.assign(y=[[1], [1, 2], [3]]))({"x": numpy.arange(3)})
