"""Small helpers that scripts take from Horovod's module of the same name."""

import contextlib
import hashlib
import os
import socket
from typing import Any, Dict, Iterator, List, Optional, Sequence

from horovod.spark.common.store import is_databricks as is_databricks  # its name in Horovod is of this module

# The namespaces that differ between two containers of one machine. Processes that share these can share memory.
_NAMESPACES = ("ipc", "mnt", "net", "uts")


def host_hash(salt: Optional[str] = None) -> str:
    """A name for this machine and container, equal for processes that can share memory. `salt` makes another one of it."""
    parts = [socket.gethostname(), os.environ.get("CONTAINER_ID", ""), salt or ""]
    for name in _NAMESPACES:
        try:
            parts.append(os.readlink(f"/proc/self/ns/{name}"))
        except OSError:
            pass  # a kernel without it has one for all
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"{socket.gethostname().partition('.')[0]}-{digest[:32]}"


def to_list(value: Any, length: int) -> Optional[List[Any]]:
    """A list of `length`: one item stands for all. None stays None; ValueError where the number of items is another."""
    if value is None:
        return None
    items = value if isinstance(value, list) else [value]
    if len(items) == 1:
        return items * length
    if len(items) != length:
        raise ValueError(f"a list of {len(items)} is given where one item, or one of each of {length}, is expected")
    return items


def _get_metadata(frame: Any) -> Dict[str, Dict[str, Any]]:
    """What a model remembers of a frame's columns. Horovod's tests replace it in this module, so it has to be here."""
    from horovod.spark.common import frames

    return frames.metadata_of_columns(frame)


@contextlib.contextmanager
def prepare_data(
    num_processes: int,
    store: Any,
    df: Any,
    label_columns: Sequence[str],
    feature_columns: Sequence[str],
    validation: Any = None,
    sample_weight_col: Optional[str] = None,
    compress_sparse: bool = False,
    partitions_per_process: int = 10,
    verbose: int = 0,
) -> Iterator[int]:
    """Writes what is needed of a frame into the store, for fit_on_parquet(dataset_idx=...).

    It gives the number of the data's place in the store, which is the frame's own while the context lasts. Data that
    was written for the same frame is used again."""
    from horovod.spark.common import copies, frames, materialise

    wanted = [*feature_columns, *label_columns, *([sample_weight_col] if sample_weight_col else [])]
    key = frames._training_cache.create_key(df, store, validation)
    with frames._training_cache.use(key) as place:
        if frames._training_cache.is_cached(key, store):
            frames._training_cache.get_dataset(key)
        else:
            prepared = materialise.prepare(
                df, store, columns=list(feature_columns), label_columns=list(label_columns), cache="never",
                sample_weight_col=sample_weight_col, validation=validation, num_proc=num_processes, dataset_idx=place,
                partitions_per_process=partitions_per_process, compress_sparse=compress_sparse,
            )  # fmt: skip
            needed = df.select(*wanted)
            metadata = _get_metadata(needed) if compress_sparse else frames.metadata_of_rows(needed)
            frames._training_cache.set_dataset(key, prepared, metadata)
            materialise.release(store, prepared)
        with copies.used(store, frames._training_cache.at(place)[0].path):
            yield place


def __getattr__(name: str) -> Any:
    """What is about DataFrames needs pyspark, which not everybody has who asks for the rest."""
    if name.startswith("__"):
        raise AttributeError(name)
    from horovod.spark.common import frames

    return getattr(frames, name)
