"""Reads a rank's batches of a data set, epoch after epoch, from Parquet.

Every rank makes the same number of steps, and a row is seen once an epoch. The order is a function of seed, epoch and
number of ranks, so a job resumes at the very batch. Needs numpy, pyarrow and fsspec, and no Spark: it runs in the
ranks.

    with Reader(dataset, store, rank=hvd.rank(), size=hvd.size(), batch=128) as reader:
        for epoch in range(3):
            for batch in reader.epoch(epoch):       # {"features": array (128, 784), "label": array (128,)}
                ...
"""

from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy

from horovod.spark.common import order
from horovod.spark.common.columns import Decoder
from horovod.spark.common.dataset import unpacked_bytes
from horovod.spark.common.files import Files

__all__ = ["Reader", "WEIGHT"]

# The time in seconds to wait for a thread that is in the middle of a read.
_STOP_S = 10.0
# The column that, with pad=True, marks the rows that count: 1.0, and 0.0 for those that only fill the last batch.
WEIGHT = "__weight"

# Of rows read at once. What is read ahead is less where it would be more: a process that is killed for its memory costs more
# than one that waits for its files. The rows of a step are the same in either case.
_MOST_BYTES = 2 * 1024**3

Batch = Dict[str, numpy.ndarray]
# A pool of rows, with the number of the row of the rank's epoch at which it begins.
Placed = Tuple[int, Batch]


class Reader:
    """The batches of one rank. Arrays of a batch are views of a larger one: copy what is to outlive the next batches.

    Args:
        dataset: which row groups there are.
        fs_or_store: a store, a file system of fsspec, or None for this machine's.
        rank, size: of this process and in all.
        batch: rows of a batch, on each rank.
        seed, shuffle: the order; without shuffle it is that of the files.
        pool: row groups that are read and shuffled together. More shuffle better and take more memory.
        ahead: the most pools that a thread reads while others are used, fewer where they are large; 0: no thread.
        columns: which to read; default: all.
        transform: gets each batch and returns the one to use instead.
        pad: fill the last batch with rows that were there already, with 0.0 in the column "__weight", instead of
            leaving out the rows that do not fill one.
        in_memory: read this rank's share once and keep it: epochs then shuffle the rows of a rank.
        fill: by column, what stands for a null; a null in another column is an error.
        decode: by column, a function from an array of a batch's values to an array of numbers; for images in binary
            columns.
    """

    def __init__(
        self,
        dataset: Any,
        fs_or_store: Any = None,
        *,
        rank: int,
        size: int,
        batch: int,
        seed: int = 0,
        shuffle: bool = True,
        pool: int = 4,
        ahead: int = 1,
        columns: Optional[Sequence[str]] = None,
        transform: Optional[Callable[[Batch], Batch]] = None,
        pad: bool = False,
        in_memory: bool = False,
        fill: Optional[Dict[str, Any]] = None,
        decode: Optional[Dict[str, Callable[[numpy.ndarray], numpy.ndarray]]] = None,
    ) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} of {size} ranks: it must be from 0 to {size - 1}")
        if batch < 1 or pool < 1 or ahead < 0:
            raise ValueError(f"batch={batch}, pool={pool}, ahead={ahead}: batch and pool from 1 on, ahead from 0 on")
        self._groups = dataset.groups
        self._columns = [dataset.column(name) for name in columns] if columns else list(dataset.columns)
        self._share = order.Share(dataset.rows, rank, size, batch, pad)
        if self._share.steps == 0:
            raise ValueError(f"{dataset.rows} rows are not one batch of {batch} on each of {size} ranks; "
                             "take a smaller batch, fewer ranks, or pad=True")  # fmt: skip
        self._seed, self._shuffle, self._pool = seed, shuffle, pool
        self._transform = transform
        self._decode = dict(decode or {})
        self._in_memory = in_memory
        self._kept: Optional[Batch] = None
        self._files = Files(fs_or_store)
        self._decoders = [Decoder(column, (fill or {}).get(column.name)) for column in self._columns]
        self._reading: Any = None
        self._ahead = next((count for count in range(ahead, 0, -1) if self._bytes_with(count) <= _MOST_BYTES), 0)

    @property
    def steps_per_epoch(self) -> int:
        """The same on all ranks."""
        return self._share.steps

    @property
    def memory_bound(self) -> int:
        """The most bytes of rows that this reader holds at once.

        (ahead + 2) pools of `pool` groups, one without a thread, and one more where sparse rows are put together; and three
        times the largest group: as it stands in the file, as Arrow unpacks it, and the buffer that it outgrows."""
        return self._bytes_with(self._ahead)

    def _bytes_with(self, ahead: int) -> int:
        sizes = unpacked_bytes(self._columns, self._groups)
        row = sum(sizes) / sum(group.rows for group in self._groups)
        sparse = [column.dense_bytes for column in self._columns if column.kind == "sparse"]
        pools = (ahead + 2 if ahead else 1) + bool(sparse)
        held = (1 + bool(sparse)) * self._share.own * row if self._in_memory else pools * self._pool * max(sizes)
        return int(held + 3 * max(sizes) + self._share.batch * (row + sum(sparse)))

    def epoch(self, epoch: int, step: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from batch number `step` on."""
        if not 0 <= step <= self.steps_per_epoch:
            raise ValueError(f"step {step} of an epoch of {self.steps_per_epoch} steps")
        self._stop_reading()
        if step == self.steps_per_epoch:
            return
        for batch in self._cut(self._ahead_of(self._pools(epoch, step)), step):
            for name, function in self._decode.items():
                if name in batch:
                    batch[name] = function(batch[name])
            yield self._transform(batch) if self._transform is not None else batch

    def close(self) -> None:
        """Ends the thread that reads ahead, and closes the files."""
        self._stop_reading()
        self._files.close()
        self._kept = None

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _stop_reading(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.stop(_STOP_S)

    def _ahead_of(self, pools: Iterator[Placed]) -> Iterator[Placed]:
        """The same pools, read by a thread, which ends with this iteration."""
        if not self._ahead or self._in_memory:
            yield from pools
            return
        # Horovod's loaders read ahead in the same way. It ends its threads before Python shuts down.
        from horovod.data.data_loader_base import _Reading

        reading = self._reading = _Reading(pools, self._ahead)
        try:
            yield from reading
        finally:
            reading.stop(_STOP_S)
            if self._reading is reading:
                self._reading = None

    def _line(self, epoch: int) -> Any:
        count = len(self._groups)
        return order.group_order(count, self._seed, epoch) if self._shuffle else numpy.arange(count)

    def _pieces(self, epoch: int, begin: int, end: int) -> List[order.Segment]:
        return order.segments([group.rows for group in self._groups], begin, end, self._line(epoch))

    def _pools(self, epoch: int, step: int) -> Iterator[Placed]:
        """The pools that hold the rows from batch `step` on, and the last one in any case: it fills the last batch."""
        share = self._share
        first = step * share.batch
        if self._in_memory:
            yield from self._from_memory(epoch, first)
            return
        begin, end = self._stretch(share.own)
        shift = order.first_row(share.rows, self._seed, epoch) if self._shuffle and share.leaves_out else 0
        made = order.pools(self._pieces(epoch, begin + shift, end + shift), self._pool)
        for pool in made:
            if pool.first + pool.rows > first or pool is made[-1]:
                yield pool.first, self._read(pool, self._places(pool.rows, epoch, pool.number))

    def _stretch(self, own: int) -> Tuple[int, int]:
        """Which rows of the line to read."""
        if own:
            return self._share.begin, self._share.begin + own
        # There are fewer rows than ranks: this rank reads a row of another, which does not count here.
        begin = self._share.rank % self._share.rows
        return begin, begin + 1

    def _places(self, rows: int, epoch: int, pool: int) -> Any:
        """Where the rows of a pool go in it."""
        return order.row_order(rows, self._seed, epoch, self._share.rank, pool) if self._shuffle else slice(0, rows)

    def _from_memory(self, epoch: int, first: int) -> Iterator[Placed]:
        if self._kept is None:
            begin, end = self._share.whole_stretch(self._share.rank)
            begin, end = (begin, end) if end > begin else self._stretch(0)
            rows = order.Pool(0, 0, tuple(self._pieces(0, begin, end)))
            self._kept = self._read(rows, slice(0, rows.rows))
        count = len(next(iter(self._kept.values())))
        places = self._places(count, epoch, 0) if self._shuffle else numpy.arange(count)
        chunk = self._share.batch
        last = max(self._share.own - 1, 0) // chunk * chunk
        for begin in range(min(first, last) // chunk * chunk, last + 1, chunk):
            yield begin, {name: values[places[begin : begin + chunk]] for name, values in self._kept.items()}

    def _read(self, pool: order.Pool, places: Any) -> Batch:
        """The rows of a pool, each at its place."""
        rows = {column.name: column.empty(pool.rows) for column in self._columns}
        names = [name for column in self._columns for name in column.stored]
        at = 0
        for segment in pool.segments:
            group = self._groups[segment.group]
            where = f"row group {group.index} of {group.file}"
            for arrays in self._files.read(group, names, segment.begin, segment.end):
                count = len(arrays[0])
                to = slice(at, at + count) if isinstance(places, slice) else places[at : at + count]
                by_name: Any = dict(zip(names, arrays))
                for decoder in self._decoders:
                    column = decoder.column
                    rows[column.name][to] = decoder([by_name[name] for name in column.stored], where)
                at += count
                arrays = by_name = ()  # the group leaves memory before the next one comes
        return rows

    def _cut(self, pools: Iterator[Placed], step: int) -> Iterator[Batch]:
        """Batches of the rows that count; then, with padding, those that are filled with the last pool's."""
        batch, own = self._share.batch, self._share.own
        at = step * batch
        pieces: List[Batch] = []
        missing, rows = batch, {}
        for first, rows in pools:
            end = min(first + _rows(rows), own)
            while at < end:
                count = min(missing, end - at)
                piece = _slice(rows, at - first, at - first + count)
                at, missing = at + count, missing - count
                # A view keeps its whole pool in memory. So rows that are still needed when the next pool is read are
                # copied.
                pieces.append(_copied(piece) if end - at < batch else piece)
                if not missing:
                    yield self._weighed(_joined(pieces), batch)
                    piece, pieces, missing = {}, [], batch
            if at < own:
                rows = {}
        while at < self.steps_per_epoch * batch:
            filler = numpy.arange(at - own, at - own + missing) % _rows(rows)
            pieces.append({name: values[filler] for name, values in rows.items()})
            yield self._weighed(_joined(pieces), batch - missing)
            at, pieces, missing = at + missing, [], batch

    def _weighed(self, rows: Batch, count: int) -> Batch:
        if self._share.pad:
            rows[WEIGHT] = (numpy.arange(self._share.batch) < count).astype(numpy.float32)
        return rows


def _rows(rows: Batch) -> int:
    return len(next(iter(rows.values())))


def _slice(rows: Batch, begin: int, end: int) -> Batch:
    return {name: values[begin:end] for name, values in rows.items()}


def _copied(rows: Batch) -> Batch:
    return {name: values.copy() for name, values in rows.items()}


def _joined(pieces: List[Batch]) -> Batch:
    if len(pieces) == 1:
        return pieces[0]
    return {name: numpy.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
