"""The Parquet files that a reader has open: few at a time, and their footers, which are read once."""

import collections
from typing import Any, Iterator, List, Sequence, Tuple

# Row groups are read in random order, so keeping more files open saves little. A kept footer saves a request to the
# bucket.
_OPEN_FILES = 8
_FOOTERS = 256
# A remote file system serves a large range at about the cost of a small one.
_REMOTE_BLOCK = 8 * 1024 * 1024


class Files:
    """Thread: one at a time."""

    def __init__(self, fs_or_store: Any) -> None:
        self._of = fs_or_store
        self._open: "collections.OrderedDict[str, Any]" = collections.OrderedDict()
        self._footers: "collections.OrderedDict[str, Any]" = collections.OrderedDict()

    def read(self, group: Any, names: Sequence[str], begin: int, end: int) -> Iterator[Tuple[Any, ...]]:
        """Arrow's arrays of the named columns, for the rows [begin, end) of a group, in pieces of the same rows."""
        try:
            table = self._file(group.file).read_row_group(group.index, columns=list(names), use_threads=False)
        except (OSError, ValueError, KeyError) as error:
            raise RuntimeError(
                f"row group {group.index} of {group.file} cannot be read: {type(error).__name__}: {error}; "
                "was the data removed or written again since the fit began?"
            ) from error
        if table.num_rows != group.rows or not set(names) <= set(table.column_names):
            raise RuntimeError(f"row group {group.index} of {group.file} has {table.num_rows} rows of "
                               f"{', '.join(table.column_names)}, not {group.rows} of {', '.join(names)}: "
                               "it was written again since the fit began")  # fmt: skip
        for batch in table.slice(begin, end - begin).to_batches():
            yield tuple(batch.column(name) for name in names)

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _file(self, path: str) -> Any:
        file = self._open.pop(path, None) or self._opened(path)
        self._open[path] = file
        if len(self._open) > _OPEN_FILES:
            self._open.popitem(last=False)[1].close()
        return file

    def _opened(self, path: str) -> Any:
        import pyarrow
        import pyarrow.parquet

        fs = getattr(self._of, "fs", self._of)
        is_local = fs is None or "file" in _protocols(fs)
        source = pyarrow.OSFile(path) if is_local else fs.open(path, "rb", block_size=_REMOTE_BLOCK)
        # Spark writes times as INT96. As nanoseconds, which is Arrow's default, those before 1677 or after 2262 become others.
        file = pyarrow.parquet.ParquetFile(source, metadata=self._footers.get(path), pre_buffer=not is_local,
                                           coerce_int96_timestamp_unit="us")  # fmt: skip
        self._footers[path] = file.metadata
        if len(self._footers) > _FOOTERS:
            self._footers.popitem(last=False)
        return file


def _protocols(fs: Any) -> List[str]:
    return [fs.protocol] if isinstance(fs.protocol, str) else list(fs.protocol)
