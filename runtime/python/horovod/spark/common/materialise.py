"""From a DataFrame to files that ranks can read, with Spark's help.

Rows are copied once, by one write that also splits them, so that no row is both in training and in validation. A copy
has a folder of its own and counts from when its manifest stands there: object stores cannot rename. A plain scan of
Parquet files is not copied at all. Copies are used again for an equal plan, and removed when a later one takes their
place, also by a later driver.
"""

import dataclasses
import posixpath
import random
import threading
import uuid
from typing import Any, Dict, List, Optional, Sequence, Tuple

from horovod.spark.common import dataset as data
from horovod.spark.common import copies, plans, spark_columns
from horovod.spark.common.columns import Column

_SPLIT = "__hvd_split"
# The most bytes of a row group. A few fit in a rank's memory, and one is worth a request to a bucket.
_GROUP_BYTES = 8 * 1024 * 1024
# Files whose row groups are larger, unpacked, are copied, because a rank holds several at once.
_LARGEST_GROUP_BYTES = 256 * 1024 * 1024
CACHES = ("auto", "always", "never")


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a fit needs of a frame. Two fits that want the same of an equal plan share one copy."""

    columns: Tuple[str, ...]
    labels: Tuple[str, ...]
    weight: Optional[str]
    validation: Any
    files: int
    compress_sparse: bool
    seed: Optional[int]
    fill: Tuple[Tuple[str, Any], ...] = ()

    @property
    def names(self) -> List[str]:
        every = [*self.columns, *self.labels, *([self.weight] if self.weight else [])]
        return list(dict.fromkeys(every))


@dataclasses.dataclass
class _Copy:
    """A copy that this process has made. It has the mark while it has users."""

    frame: Any
    facts: Tuple[Any, ...]
    prepared: data.Prepared
    users: int
    mark: Optional[str]


_copies: List[_Copy] = []
_checked: set = set()
_lock = threading.Lock()


def prepare(
    frame: Any,
    store: Any,
    *,
    columns: Sequence[str],
    label_columns: Sequence[str] = (),
    sample_weight_col: Optional[str] = None,
    validation: Any = None,
    num_proc: int = 1,
    partitions_per_process: int = 10,
    dataset_idx: Optional[int] = None,
    compress_sparse: bool = False,
    cache: str = "auto",
    seed: Optional[int] = None,
    fill: Optional[Dict[str, Any]] = None,
) -> data.Prepared:
    """The rows of a DataFrame as data sets that ranks can read; one for training, one for validation.

    Args:
        columns, label_columns, sample_weight_col: what is needed of the frame.
        validation: None, a fraction in [0, 1), or a column whose rows are for validation where it is true or above 0, and for
            training where it is false or 0; other rows are for neither.
        num_proc, partitions_per_process: no more files are written than their product.
        dataset_idx: which of the store's places; None: the one without a number.
        compress_sparse: write vectors as indices and values; the reader makes them dense.
        cache: "auto": read the files of a plain Parquet scan where they are, and use again what an equal plan has
            written; "always": write a copy, and use it again; "never": write a copy each time.
        seed: of the random split.
        fill: by column, what to write in place of nulls; nulls of other columns are an error.

    Raises:
        ValueError: a column is missing, has nulls, rows of several lengths, or values of a kind that cannot be read.
        RuntimeError: the store is not seen by all who need it.
    """
    if cache not in CACHES:
        raise ValueError(f"cache must be one of {', '.join(CACHES)}, not {cache!r}")
    wanted = Wanted(
        tuple(columns), tuple(label_columns), sample_weight_col, validation, num_proc * partitions_per_process,
        compress_sparse, seed, tuple(sorted((fill or {}).items())),
    )  # fmt: skip
    described = _described(frame, wanted)
    split = _split(frame, wanted)
    _check_store(store, frame)
    base = store.get_train_data_path(dataset_idx)
    if cache == "auto" and split is None and not wanted.fill:
        scanned = _scanned(frame, store, described)
        if scanned is not None:
            return _finished(store, dataset_idx, f"{base}/{uuid.uuid4().hex[:12]}", scanned, None, made=False)
    facts = _facts(frame, store, wanted, base) if cache != "never" else None
    # Frames are copied one at a time. Parallel fits of one frame would all copy it, and Spark uses all slots for one
    # anyway.
    with _lock:
        kept = _find(frame, facts, store)
        if kept is None:
            prepared, mark = _copied(frame, store, wanted, described, split, dataset_idx)
            kept = _Copy(frame, facts or (), prepared, 0, mark)
            _copies.append(kept)
            copies.remove_others(store, base, {copy.prepared.path for copy in _copies})
        else:
            _publish(store, dataset_idx, kept.prepared)
        kept.users += 1
        return kept.prepared


def release(store: Any, prepared: data.Prepared) -> None:
    """A fit has ended. The newest copy stays for the next fit, older ones that nobody uses are removed."""
    with _lock:
        for copy in _copies:
            if copy.prepared.path == prepared.path:
                copy.users = max(copy.users - 1, 0)
                if not copy.users:
                    copies.end(store, copy.mark)
                    copy.mark = None
        place = posixpath.dirname(prepared.path)
        same = [copy for copy in _copies if posixpath.dirname(copy.prepared.path) == place]
        for copy in same[:-1]:
            if not copy.users:
                _copies.remove(copy)
                copies.remove(store, copy.prepared.path)
    if not prepared.made:
        store.discard(prepared.path)  # only manifests


def _described(frame: Any, wanted: Wanted) -> Dict[str, Column]:
    fields = {field.name: field for field in frame.schema.fields}
    missing = [name for name in wanted.names if name not in fields]
    if missing:
        raise ValueError(f"the DataFrame has no column {', '.join(map(repr, missing))}; it has {', '.join(fields)}")
    return {name: spark_columns.described(fields[name], wanted.compress_sparse) for name in wanted.names}


def _split(frame: Any, wanted: Wanted) -> Any:
    """The expression that is true for rows of validation, false for those of training, and null for those that are neither;
    None: there is no validation."""
    from pyspark.sql import functions as F

    asked = wanted.validation
    if asked is None or (not isinstance(asked, str) and asked == 0):
        return None
    if isinstance(asked, str):
        kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        if asked not in kinds:
            raise ValueError(f"validation={asked!r}: the DataFrame has no such column")
        column = F.col(spark_columns.quoted(asked))
        if kinds[asked] not in ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double"):
            raise ValueError(f"validation={asked!r}: the column is {kinds[asked]}; it must be boolean or a number")
        return column if kinds[asked] == "boolean" else F.when(column > 0, True).when(column == 0, False)
    if isinstance(asked, bool) or not isinstance(asked, (int, float)) or not 0 < asked < 1:
        raise ValueError(f"validation={asked!r}: it must be a fraction in [0, 1) or the name of a column")
    seed = wanted.seed if wanted.seed is not None else random.getrandbits(31)
    return F.rand(seed) < float(asked)


def _check_store(store: Any, frame: Any) -> None:
    """Once for a store and session: it takes two small jobs."""
    session = frame.sparkSession
    known = (store.prefix_path, id(session))
    if known not in _checked:
        store.check_shared(session)
        _checked.add(known)


def _scanned(frame: Any, store: Any, columns: Dict[str, Column]) -> Optional[data.Dataset]:
    """The frame's own files; None where they cannot serve."""
    urls = [plans.to_fsspec(url) for url in plans.plain_parquet(frame, list(columns)) or ()]
    if not urls or not _are_of_store(urls, store, frame):
        return None
    if any(column.kind in ("vector", "sparse") for column in columns.values()):
        return None  # Parquet holds a vector as a nested row
    try:
        found = data.scan(store.fs, [store.fs._strip_protocol(url) for url in urls], dict.fromkeys(columns))
    except Exception:
        # fsspec cannot get at what Spark can, which each file system says by exceptions of its own. Or Spark reads the
        # files as what the footers do not say: under a name in another case, or as a wider type. A copy has what Spark
        # reads, and refuses real nulls and lengths itself.
        return None
    same = all((c.kind, c.dtype) == (columns[c.name].kind, columns[c.name].dtype) for c in found.columns)
    return found if same and max(data.unpacked_bytes(found.columns, found.groups)) <= _LARGEST_GROUP_BYTES else None


def _are_of_store(urls: Sequence[str], store: Any, frame: Any) -> bool:
    """Whether the store's file system is that of the files."""
    here = plans.to_fsspec(store.prefix_path).split(":", 1)[0]
    if any(url.split(":", 1)[0] != here for url in urls):
        return False
    own = plans.to_fsspec(plans.qualified(frame, store.get_spark_path(store.prefix_path)))
    return {_left_out(store.fs, url) for url in urls} == {_left_out(store.fs, own)}


def _left_out(fs: Any, url: str) -> str:
    """What the file system's own paths do not say of a URL: Azure's account, Hadoop's name node. Equal paths of two of them
    are two files."""
    authority = url.partition("://")[2].partition("/")[0]
    return authority.removeprefix(fs._strip_protocol(url).partition("/")[0])


def _facts(frame: Any, store: Any, wanted: Wanted, base: str) -> Optional[Tuple[Any, ...]]:
    of_plan = plans.facts(frame)
    return None if of_plan is None else (of_plan, wanted, base, id(frame.sparkSession))


def _find(frame: Any, facts: Optional[Tuple[Any, ...]], store: Any) -> Optional[_Copy]:
    """The copy of an equal plan, with its mark, if it is still there."""
    for copy in reversed(_copies):
        if facts is not None and copy.facts == facts and copy.frame.sameSemantics(frame):
            copy.mark = copy.mark or copies.use(store, copy.prepared.path)
            if copy.mark and store.exists(f"{copy.prepared.path}/train/{data.MANIFEST}"):
                return copy
    return None


def _copied(
    frame: Any, store: Any, wanted: Wanted, columns: Dict[str, Column], split: Any, dataset_idx: Optional[int]
) -> Tuple[data.Prepared, str]:
    path = f"{store.get_train_data_path(dataset_idx)}/{uuid.uuid4().hex[:12]}"
    try:
        mark = copies.begin(store, path)
        known = _write(frame, store, wanted, columns, split, f"{path}/rows")
        train = _part(store, path, "train", known, wanted, "training")
        validation = None if split is None else _part(store, path, "validation", known, wanted, "validation")
        return _finished(store, dataset_idx, path, train, validation, made=True), mark
    except BaseException:
        store.remove(path)
        raise


def _write(
    frame: Any, store: Any, wanted: Wanted, columns: Dict[str, Column], split: Any, folder: str
) -> Dict[str, Column]:
    """Writes the rows; the columns with what was seen of them meanwhile."""
    from pyspark.sql import functions as F

    fields = {field.name: field for field in frame.schema.fields}
    fill = dict(wanted.fill)
    stored = [part for c in columns.values() for part in spark_columns.written(c, fields[c.name], fill.get(c.name))]
    which = F.lit("train") if split is None else F.when(split, "validation").otherwise("train")
    chosen = frame if split is None else frame.filter(split.isNotNull())
    out = chosen.coalesce(wanted.files).select(*stored, which.alias(_SPLIT))
    out, seen = _observed(out, spark_columns.widths(list(columns.values())))
    out.write.options(**_groups_of(columns, fields)).partitionBy(_SPLIT).parquet(store.get_spark_path(folder))
    store.wait_for_spark(frame.sparkSession, folder)
    known = {}
    for name, column in columns.items():
        if column.kind == "sparse":
            low, high = spark_columns.vector_width(frame, name)
        elif column.kind in ("list", "vector") and name in seen():
            low, high = seen()[name]
        else:
            known[name] = column
            continue
        known[name] = dataclasses.replace(column, width=_one_width(name, low, high))
    return known


def _groups_of(columns: Dict[str, Column], fields: Dict[str, Any]) -> Dict[str, str]:
    """Parquet's options for row groups that ranks can unpack. The writer looks at their size as compressed alone."""
    row = 0
    for name, column in columns.items():
        row += dataclasses.replace(column, width=spark_columns.told_width(fields[name])).row_bytes
    return {
        "parquet.block.size": str(_GROUP_BYTES),
        # Releases of Parquet that do not have it, before Spark 4.1, pass it over.
        "parquet.block.row.count.limit": str(max(_GROUP_BYTES // row, 1)),
        # Where rows are longer than is known here: without a dictionary, values that repeat are packed to a twentieth at most.
        "parquet.enable.dictionary": "false",
        # How many rows come before the writer looks at the size. 100, as it has it, are 60 MB of images.
        "parquet.page.size.row.check.min": "10",
    }


def _one_width(name: str, low: Optional[int], high: Optional[int]) -> Optional[int]:
    if low is None or low < 0:  # size() of a null is null, or -1 if Spark is configured so
        return None
    if low != high:
        raise ValueError(f"the rows of column {name!r} have from {low} to {high} values; pad or cut them to one length")
    return low


def _observed(frame: Any, aggregates: Dict[str, Tuple[Any, Any]]) -> Tuple[Any, Any]:
    """The frame with aggregates that are taken while it is written, and a function that gives them afterwards."""
    if not aggregates:
        return frame, dict
    try:
        from pyspark.sql import Observation

        observation = Observation()
        pairs = [(f"{end}{number}", value) for number, both in enumerate(aggregates.values())
                 for end, value in zip(("low", "high"), both)]  # fmt: skip
        observed = frame.observe(observation, *[value.alias(name) for name, value in pairs])
    except (ImportError, TypeError, NotImplementedError):  # an older Connect; the reader looks at every list anyway
        return frame, dict

    def seen() -> Dict[str, Tuple[int, int]]:
        got = observation.get
        return {name: (got[f"low{i}"], got[f"high{i}"]) for i, name in enumerate(aggregates)}

    return observed, seen


def _part(store: Any, path: str, part: str, known: Dict[str, Column], wanted: Wanted, use: str) -> data.Dataset:
    files = data.data_files(store, f"{path}/rows/{_SPLIT}={part}")
    if not files:
        said = f" with validation={wanted.validation!r}" if wanted.validation else ""
        raise ValueError(f"the DataFrame has no rows for {use}{said}")
    return data.scan(store.fs, files, dict(known))


def _finished(
    store: Any,
    dataset_idx: Optional[int],
    path: str,
    train: data.Dataset,
    validation: Optional[data.Dataset],
    made: bool,
) -> data.Prepared:
    """The manifests, which say that the data is whole."""
    if validation is not None:
        data.write_manifest(store, f"{path}/validation", validation)
    data.write_manifest(store, f"{path}/train", train)
    prepared = data.Prepared(train, validation, path, made)
    _publish(store, dataset_idx, prepared)
    return prepared


def _publish(store: Any, dataset_idx: Optional[int], prepared: data.Prepared) -> None:
    """For fit_on_parquet(), which asks for what the store has, and reads this where no program has written files."""
    data.write_manifest(store, store.get_val_data_path(dataset_idx), prepared.validation)
    data.write_manifest(store, store.get_train_data_path(dataset_idx), prepared.train)
