"""How a rank's training loop gets its data: a module with training and validation batches, as Horovod's estimators
have it.

`ArrowDataModule` reads with horovod.spark.common.reader. A class of the user's own with the same methods may take its
place, as the estimators' parameter `data_module`.
"""

import logging
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import numpy

from horovod.spark.common.dataset import Dataset
from horovod.spark.common.reader import WEIGHT, Batch, Reader

__all__ = ["ArrowDataModule", "DataModule", "NVTabularDataModule", "PetastormDataModule", "pandas_transform"]

_log = logging.getLogger("horovod.spark")


class DataModule:
    """What a training loop asks of its data. A context manager: files and threads end with it.

    KerasEstimator also needs an attribute `train_steps`, the steps of an epoch, unless it has train_steps_per_epoch.

    Args:
        train_dir, val_dir: where the data is: a Dataset, or a folder with a manifest or Parquet files.
        num_train_epochs: how many epochs are to come.
        has_val: whether there is validation data.
        train_batch_size, val_batch_size: rows of a batch, on each rank.
        shuffle: whether training rows are shuffled.
        transform_fn: gets each batch, as `pandas_transform` makes one of a function of a pandas frame.
        inmemory_cache_all: keep the rank's rows in memory.
        cur_shard, shard_count: rank and number of ranks.
        schema_fields: columns to read; default: all.
        storage_options: what fsspec's file system takes.
        steps_per_epoch_train: steps of an epoch; where the data has fewer, further orders of it follow, and where it has
            more, the next epoch goes on with the rest.
        steps_per_epoch_val: no more steps than these.
        verbose: above 0: say what is read.
    """

    short_name = ""

    def __init__(
        self,
        train_dir: Any,
        val_dir: Any = None,
        num_train_epochs: int = 1,
        has_val: bool = True,
        train_batch_size: int = 32,
        val_batch_size: int = 32,
        shuffle: bool = True,
        transform_fn: Optional[Callable[[Batch], Batch]] = None,
        inmemory_cache_all: bool = False,
        cur_shard: int = 0,
        shard_count: int = 1,
        schema_fields: Optional[Sequence[str]] = None,
        storage_options: Optional[Dict[str, Any]] = None,
        steps_per_epoch_train: Optional[int] = None,
        steps_per_epoch_val: Optional[int] = None,
        verbose: int = 1,
        **kwargs: Any,
    ) -> None:
        self.train_dir, self.val_dir = train_dir, val_dir
        self.num_train_epochs, self.has_val = num_train_epochs, has_val and val_dir is not None
        self.train_batch_size, self.val_batch_size = train_batch_size, val_batch_size
        self.shuffle, self.transform_fn = shuffle, transform_fn
        self.inmemory_cache_all = inmemory_cache_all
        self.cur_shard, self.shard_count = cur_shard, shard_count
        self.schema_fields, self.storage_options = schema_fields, dict(storage_options or {})
        self.steps_per_epoch_train, self.steps_per_epoch_val = steps_per_epoch_train, steps_per_epoch_val
        self.verbose = verbose
        self.kwargs = kwargs

    def __enter__(self) -> "DataModule":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def train_data(self, epoch: int = 0, step: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from a step on."""
        raise NotImplementedError

    def val_data(self) -> Iterator[Batch]:
        """The batches of the validation data; rows whose weight in the column "__weight" is 0 only fill the
        last one. Without that column each row counts."""
        raise NotImplementedError


class ArrowDataModule(DataModule):
    """Reads with pyarrow, in exact epochs. More arguments: `seed`, `pool`, `ahead`, `fill` and `decode` of the Reader,
    and `store`, whose file system holds the data."""

    short_name = "arrow"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._train: Optional[Reader] = None
        self._val: Optional[Reader] = None

    def __enter__(self) -> "ArrowDataModule":
        self._train = self._reader(self.train_dir, self.train_batch_size, shuffle=self.shuffle)
        if self.has_val:
            self._val = self._reader(self.val_dir, self.val_batch_size, shuffle=False, pad=True)
        if self.verbose and self.cur_shard == 0:
            _log.info("%d steps of %d rows an epoch on each of %d ranks", self.train_steps, self.train_batch_size,
                      self.shard_count)  # fmt: skip
        return self

    def __exit__(self, *_: Any) -> None:
        for reader in (self._train, self._val):
            if reader is not None:
                reader.close()
        self._train = self._val = None

    @property
    def train_steps(self) -> int:
        """Of an epoch."""
        reader = self._opened(self._train)
        return self.steps_per_epoch_train or reader.steps_per_epoch

    @property
    def val_steps(self) -> int:
        if self._val is None:
            return 0
        steps = self._val.steps_per_epoch
        return steps if self.steps_per_epoch_val is None else min(steps, self.steps_per_epoch_val)

    def train_data(self, epoch: int = 0, step: int = 0) -> Iterator[Batch]:
        return _first(self._rounds(epoch, step), self.train_steps - step)

    def _rounds(self, epoch: int, step: int) -> Iterator[Batch]:
        """The data from this step on, again and again, each time in another order. Steps are counted through all epochs,
        so that one of fewer steps than the data has goes on where the last one ended."""
        reader = self._opened(self._train)
        steps = reader.steps_per_epoch
        number, first = divmod(epoch * self.train_steps + step, steps)
        while True:
            yield from reader.epoch(number, first)
            number, first = number + 1, 0

    def val_data(self) -> Iterator[Batch]:
        return _first(self._val.epoch(0), self.val_steps) if self._val is not None else iter(())

    def _opened(self, reader: Optional[Reader]) -> Reader:
        if reader is None:
            raise RuntimeError(f"{type(self).__name__} is closed; use it in a with statement")
        return reader

    def _reader(self, where: Any, batch: int, **options: Any) -> Reader:
        store = self._store(where)
        dataset = where if isinstance(where, Dataset) else _dataset(store, where)
        own = {name: self.kwargs[name] for name in ("seed", "pool", "ahead", "fill", "decode") if name in self.kwargs}
        return Reader(dataset, store, rank=self.cur_shard, size=self.shard_count, batch=batch,
                      columns=self.schema_fields,
                      transform=self.transform_fn, in_memory=self.inmemory_cache_all, **own, **options)  # fmt: skip

    def _store(self, where: Any) -> Any:
        if self.kwargs.get("store") is not None or isinstance(where, Dataset):
            return self.kwargs.get("store")
        from horovod.spark.common.store import Store

        return Store.create(str(where), storage_options=self.storage_options)


class PetastormDataModule(ArrowDataModule):
    """Horovod's name. petastorm cannot be imported beside a current pyarrow, so the data is read with pyarrow alone."""

    short_name = "petastorm"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _log.warning("PetastormDataModule reads with pyarrow here: petastorm needs a pyarrow of before 2023")
        super().__init__(*args, **kwargs)


class NVTabularDataModule(DataModule):
    """Refused."""

    short_name = "nvtabular"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise ValueError("NVTabularDataModule is not there; leave data_module out, which reads with pyarrow")


def _dataset(store: Any, folder: Any) -> Dataset:
    from horovod.spark.common.dataset import open_folder

    return open_folder(store, str(folder))


def _first(batches: Iterator[Batch], count: int) -> Iterator[Batch]:
    """So many of them; what reads ahead ends with the last."""
    try:
        for _ in range(count):
            batch = next(batches, None)
            if batch is None:
                return
            yield batch
    finally:
        batches.close()  # type: ignore[attr-defined]


def pandas_transform(function: Callable[[Any], Any], edited: Optional[List[Any]] = None,
                     removed: Optional[Sequence[str]] = None) -> Callable[[Batch], Batch]:  # fmt: skip
    """A Reader's `transform` of a function of a pandas frame, or of a row as a dict, as the estimators' transformation_fn is.

    Args:
        edited: (name, numpy type, shape, nullable) of columns that the function makes or changes.
        removed: columns that are not to be given out.
    """
    types = {field[0]: field[1] for field in edited or ()}
    takes_rows = False

    def called(batch: Batch, pandas: Any) -> Any:
        """The frame that the function makes of the batch, or of its rows, where it is written for those."""
        nonlocal takes_rows
        if not takes_rows:
            given = {name: list(values) if values.ndim > 1 else values for name, values in batch.items()}
            try:
                frame = function(pandas.DataFrame(given))
                if isinstance(frame, pandas.DataFrame):
                    return frame
                first: Exception = TypeError(f"it gave {type(frame).__name__} for a pandas frame")
            except Exception as error:
                first = error
            if not _takes_a_row(function, batch):
                raise first
            takes_rows = True
        count = len(next(iter(batch.values())))
        rows = [function({name: values[number] for name, values in batch.items()}) for number in range(count)]
        return pandas.DataFrame({name: [numpy.asarray(row[name]) for row in rows] for name in rows[0]})

    def transform(batch: Batch) -> Batch:
        import pandas

        weight = batch.pop(WEIGHT, None)
        frame = called(batch, pandas)
        kept = [name for name in frame.columns if name not in (removed or ())]
        given = {name: _array(name, frame[name], types.get(name)) for name in kept}
        if weight is not None:
            if len(frame) != len(weight):
                raise ValueError(
                    f"transformation_fn made {len(frame)} rows of {len(weight)}; it must keep their number"
                )
            given[WEIGHT] = weight
        return given

    return transform


def _takes_a_row(function: Callable[[Any], Any], batch: Batch) -> bool:
    """Whether it makes a dict of the first row as a dict, as petastorm called it, with which Horovod read."""
    try:
        return isinstance(function({name: values[0] for name, values in batch.items()}), dict)
    except Exception:
        return False


def _array(name: str, series: Any, dtype: Any) -> numpy.ndarray:
    values = series.to_numpy()
    if values.dtype == object and len(values) and not isinstance(values[0], (str, bytes)):
        try:
            values = numpy.stack([numpy.asarray(value) for value in values])
        except ValueError as error:
            raise ValueError(f"transformation_fn made rows of several shapes in column {name!r}: {error}") from error
    return values.astype(dtype) if dtype is not None else values
