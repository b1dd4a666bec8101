"""A data set as ranks see it: a list of Parquet row groups with their columns.

The driver reads the files' footers once and writes the list beside the data, as a manifest. So no rank lists a bucket,
and all ranks share the rows in the same way. The manifest is written last: where it stands, the data is whole.
"""

import dataclasses
import hashlib
import json
import posixpath
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from horovod.spark.common import columns as kinds
from horovod.spark.common.columns import Column

__all__ = ["Column", "Dataset", "MANIFEST", "Prepared", "RowGroup", "open_prepared", "scan"]

MANIFEST = "_hvd_dataset.json"
_VERSION = 1
# Footers are small and a request to a bucket is slow, so many are read at once.
_FOOTER_THREADS = 16


@dataclasses.dataclass(frozen=True)
class RowGroup:
    """A piece of a file that is read as a whole. `bytes`: of the needed columns, uncompressed, as the footer says."""

    file: str
    index: int
    rows: int
    bytes: int = 0


def unpacked_bytes(columns: Sequence[Column], groups: Sequence[RowGroup]) -> List[int]:
    """The memory that a reader needs for the rows of each group. Its size in the file does not say that, because values that
    repeat are packed there."""
    row = sum(column.row_bytes for column in columns)
    is_varying = any(column.is_varying for column in columns)
    return [group.rows * row + (group.bytes if is_varying else 0) for group in groups]


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Files are paths of the store's file system, without the protocol."""

    columns: Tuple[Column, ...]
    groups: Tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    @property
    def bytes(self) -> int:
        return sum(group.bytes for group in self.groups)

    @property
    def files(self) -> List[str]:
        return sorted({group.file for group in self.groups})

    @property
    def copy_path(self) -> str:
        """Three folders above a file, which is the folder of the copy that the file is of, if it is of one."""
        return self.groups[0].file.rsplit("/", 3)[0]

    @property
    def identity(self) -> str:
        """Equal for the same rows in the same groups, whatever the files are called; a job that resumes compares it."""
        facts = [[dataclasses.astuple(column) for column in self.columns], [[g.rows, g.bytes] for g in self.groups]]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise ValueError(
            f"there is no column {name!r} in the data, which has {', '.join(c.name for c in self.columns)}"
        )

    def to_json(self) -> str:
        numbers = {file: number for number, file in enumerate(self.files)}
        return json.dumps({
            "version": _VERSION, "columns": [dataclasses.asdict(column) for column in self.columns], "files": self.files,
            "groups": [[numbers[group.file], group.index, group.rows, group.bytes] for group in self.groups],
        })  # fmt: skip

    @staticmethod
    def from_json(text: str) -> "Dataset":
        said = json.loads(text)
        if said.get("version") != _VERSION:
            raise ValueError(f"a manifest of version {said.get('version')}; this horovod reads version {_VERSION}")
        columns = tuple(Column(**column) for column in said["columns"])
        groups = (RowGroup(said["files"][file], index, rows, size) for file, index, rows, size in said["groups"])
        return Dataset(columns, tuple(groups))


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What a fit reads. Ranks open it again with open_prepared(store, path=prepared.path): the list may be long.

    path: the folder with the manifests.  made: whether rows were copied there; False: they are read where they are.
    """

    train: Dataset
    validation: Optional[Dataset]
    path: str
    made: bool = False


def open_prepared(
    store: Any,
    dataset_idx: Optional[int] = None,
    path: Optional[str] = None,
    columns: Optional[Sequence[str]] = None,
    has_validation: bool = True,
) -> Prepared:
    """What stands in the store: at `path`, as an earlier prepare() said, or at the train and validation paths.

    `columns`: those to read of files that a program has written; default: all. `has_validation`: False leaves the data at the
    validation path out."""
    if path is not None:
        train, validation = read_manifest(store, f"{path}/train"), read_manifest(store, f"{path}/validation")
        if train is None:
            raise ValueError(f"{store!r}: there is no data at {path}; was it removed while a fit still used it?")
        return Prepared(train, validation, path, True)
    folder = store.get_train_data_path(dataset_idx)
    train = open_folder(store, folder, columns)
    place = store.get_val_data_path(dataset_idx)
    return Prepared(train, _find_in(store, place, columns, train.copy_path) if has_validation else None, folder)


def open_folder(store: Any, folder: str, columns: Optional[Sequence[str]] = None) -> Dataset:
    """The data of one folder; `columns`: as of open_prepared()."""
    found = _find_in(store, folder, columns)
    if found is None:
        raise ValueError(f"{store!r}: there is no data at {folder}; call fit(df) first or write Parquet files there")
    return found


def _find_in(
    store: Any, folder: str, columns: Optional[Sequence[str]], copy_path: Optional[str] = None
) -> Optional[Dataset]:
    """The data of one folder: its Parquet files, as a program has written them, or else what the manifest there names.

    Files come first, because every fit leaves a manifest and must not change what others have written. `copy_path`: what
    the manifest must be of. Two fits may leave theirs at one time, and rows of one may be in both parts of the other."""
    files = data_files(store, folder)
    if files:
        return scan(store.fs, files, None if columns is None else dict.fromkeys(columns))
    found = read_manifest(store, folder)
    return found if found is None or copy_path in (None, found.copy_path) else None


def write_manifest(store: Any, folder: str, dataset: Optional[Dataset]) -> None:
    """None: takes away the one that is there."""
    path = posixpath.join(folder, MANIFEST)
    if dataset is None:
        store.remove(path)
    else:
        store.write_text(path, dataset.to_json())


def read_manifest(store: Any, folder: str) -> Optional[Dataset]:
    """What the manifest of a folder says; None: there is none."""
    path = posixpath.join(folder, MANIFEST)
    return Dataset.from_json(store.read_text(path)) if store.exists(path) else None


def data_files(store: Any, folder: str) -> List[str]:
    """The Parquet files below a folder, sorted; not those whose name says that they are something else."""
    store.fs.invalidate_cache()
    root = store.get_localized_path(folder).rstrip("/")
    found = store.fs.find(root) if store.fs.exists(root) else []
    inside = (path for path in found if not any(part[:1] in "_." for part in path[len(root) + 1 :].split("/")))
    return sorted(path for path in inside if path.endswith(".parquet") or "." not in posixpath.basename(path))


def scan(fs: Any, files: Iterable[str], columns: Optional[Dict[str, Optional[Column]]] = None) -> Dataset:
    """The data set of some Parquet files, from their footers.

    `columns`: those to read, each with what is known of it; without it: all that the first file has."""
    files = list(files)
    if not files:
        raise ValueError("there are no Parquet files to read")
    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        footers = list(pool.map(lambda file: _footer(fs, file), files))
    schema = footers[0].schema.to_arrow_schema()
    wanted = columns if columns is not None else dict.fromkeys(schema.names)
    found = {name: known or kinds.from_arrow(_field(schema, name, files[0])) for name, known in wanted.items()}
    stored = [part for column in found.values() for part in column.stored]
    groups: List[RowGroup] = []
    for file, footer in zip(files, footers):
        _check_same(schema, footer.schema.to_arrow_schema(), stored, files[0], file)
        groups += _groups(file, footer, stored)
    if not groups:
        raise ValueError(f"{files[0]} and the {len(files) - 1} files beside it have no rows")
    facts = kinds.FooterFacts(footers)
    return Dataset(tuple(facts.completed(column) for column in found.values()), tuple(groups))


def _footer(fs: Any, file: str) -> Any:
    import pyarrow.parquet

    try:
        with fs.open(file, "rb") as source:
            return pyarrow.parquet.read_metadata(source)
    except ValueError as error:
        raise ValueError(f"{file} cannot be read as Parquet: {error}") from error


def _field(schema: Any, name: str, file: str) -> Any:
    if name not in schema.names:
        raise ValueError(f"there is no column {name!r} in {file}, which has {', '.join(schema.names)}")
    return schema.field(name)


def _check_same(first: Any, schema: Any, names: Sequence[str], first_file: str, file: str) -> None:
    for name in names:
        one, other = _field(first, name, first_file).type, _field(schema, name, file).type
        if one != other:
            raise ValueError(f"column {name!r} is {one} in {first_file} but {other} in {file}; write it as one type")


def _groups(file: str, footer: Any, stored: Sequence[str]) -> Iterable[RowGroup]:
    """Those with rows."""
    places = [place for place, name in enumerate(kinds.leaf_names(footer)) if name in stored]
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        if group.num_rows:
            size = sum(group.column(place).total_uncompressed_size for place in places)
            yield RowGroup(file, index, group.num_rows, size)
