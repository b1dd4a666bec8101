"""Where an estimator keeps its data, checkpoints and logs: a folder of any file system that fsspec knows.

The driver, Spark's executors and the ranks all reach the same folder. Spark writes there with Hadoop's credentials, and
ranks read with fsspec's, which are the `storage_options`. Those may hold secrets: they travel inside the pickled store,
which the job's session encrypts, and never appear in a path, in a repr or in a message.
"""

import contextlib
import functools
import os
import posixpath
import re
import shutil
import tempfile
import time
import types
import uuid
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple
from urllib.parse import unquote, urlparse

__all__ = [
    "AbstractFilesystemStore", "AdlsStore", "DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "Store",
]  # fmt: skip

# Hadoop's names of file systems, keyed by those of fsspec.
_HADOOP_NAMES = {"s3": "s3a", "gcs": "gs", "abfs": "abfss", "adl": "abfss"}
_LOCAL = ("file", "local")
# Where the nodes of Databricks have the volumes of Unity Catalog.
_VOLUMES = "/Volumes/"
# The time in seconds in which a mount shows files that Spark has written, and between two looks.
_SHOWN_S = 30.0
_LOOK_S = 0.1


def is_databricks() -> bool:
    """Whether this process runs on a node of Databricks."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


class Store:
    """What an estimator asks of a store."""

    def saving_runs(self) -> bool:
        """Whether checkpoints and logs are kept."""
        raise NotImplementedError

    def get_train_data_path(self, idx: Optional[int] = None) -> str:
        raise NotImplementedError

    def get_val_data_path(self, idx: Optional[int] = None) -> str:
        raise NotImplementedError

    def get_test_data_path(self, idx: Optional[int] = None) -> str:
        raise NotImplementedError

    def get_runs_path(self) -> str:
        raise NotImplementedError

    def get_run_path(self, run_id: str) -> str:
        raise NotImplementedError

    def get_checkpoint_path(self, run_id: str) -> Optional[str]:
        raise NotImplementedError

    def get_checkpoint_filename(self) -> str:
        raise NotImplementedError

    def get_logs_path(self, run_id: str) -> Optional[str]:
        raise NotImplementedError

    def get_logs_subdir(self) -> str:
        raise NotImplementedError

    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], Any]:
        raise NotImplementedError

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        raise NotImplementedError

    def exists(self, path: str) -> bool:
        raise NotImplementedError

    def read(self, path: str) -> bytes:
        raise NotImplementedError

    def write(self, path: str, content: bytes) -> None:
        raise NotImplementedError

    def is_parquet_dataset(self, path: str) -> bool:
        raise NotImplementedError

    def get_parquet_dataset(self, path: str) -> Any:
        raise NotImplementedError

    def to_remote(self, run_id: str, dataset_idx: Optional[int] = None) -> types.SimpleNamespace:
        """The places of a run and of its data, and how a rank writes there, as attributes."""
        return types.SimpleNamespace(
            train_data_path=self.get_train_data_path(dataset_idx), val_data_path=self.get_val_data_path(dataset_idx),
            test_data_path=self.get_test_data_path(dataset_idx), saving_runs=self.saving_runs(), runs_path=self.get_runs_path(),
            run_path=self.get_run_path(run_id), checkpoint_path=self.get_checkpoint_path(run_id),
            logs_path=self.get_logs_path(run_id), checkpoint_filename=self.get_checkpoint_filename(),
            logs_subdir=self.get_logs_subdir(), get_local_output_dir=self.get_local_output_dir_fn(run_id),
            sync=self.sync_fn(run_id),
        )  # fmt: skip

    @staticmethod
    def create(prefix_path: str, *args: Any, **kwargs: Any) -> "Store":
        """The store for a path or URL. The other arguments are those of its class, such as `storage_options`."""
        found = re.match(r"([A-Za-z][\w+.-]+):/(?!/)", str(prefix_path))
        if found and found[1].lower() not in ("file", "dbfs"):
            raise ValueError(f"{prefix_path} is no URL of a store; write {found[1]}:///... or {found[1]}://host/...")
        for kind in (HDFSStore, DBFSLocalStore):
            if kind.matches(str(prefix_path)):
                return kind(prefix_path, *args, **kwargs)
        return FilesystemStore(prefix_path, *args, **kwargs)


class AbstractFilesystemStore(Store):
    """A store that is a folder.

    Args:
        prefix_path: a path or URL.
        train_path, val_path, test_path, runs_path: other places for what would stand in that folder.
        save_runs: False: keep neither checkpoints nor logs.
        storage_options: what fsspec's file system takes.
        checkpoint_filename: the name of a run's checkpoint.
    """

    def __init__(
        self,
        prefix_path: str,
        train_path: Optional[str] = None,
        val_path: Optional[str] = None,
        test_path: Optional[str] = None,
        runs_path: Optional[str] = None,
        save_runs: bool = True,
        storage_options: Optional[Dict[str, Any]] = None,
        checkpoint_filename: Optional[str] = None,
    ) -> None:
        self.prefix_path = self.get_full_path(str(prefix_path))
        self.storage_options: Dict[str, Any] = dict(storage_options or {})
        self._train_path = self._path_or(train_path, "intermediate_train_data")
        self._val_path = self._path_or(val_path, "intermediate_val_data")
        self._test_path = self._path_or(test_path, "intermediate_test_data")
        self._runs_path = self._path_or(runs_path, "runs")
        self._save_runs = save_runs
        self._checkpoint_filename = checkpoint_filename or "checkpoint"
        self._fs: Any = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.prefix_path!r})"

    def __getstate__(self) -> Dict[str, Any]:
        # Connections and threads of a file system cannot be pickled; the receiver opens its own.
        return {**self.__dict__, "_fs": None}

    def _path_or(self, path: Optional[str], name: str) -> str:
        return self.get_full_path(str(path)) if path else posixpath.join(self.prefix_path, name)

    @property
    def protocol(self) -> str:
        """fsspec's name of the file system."""
        return self.prefix_path.split("://", 1)[0]

    def get_full_path(self, path: str) -> str:
        """The path as a URL, as Spark takes it; a plain path is one of this machine's."""
        return path if "://" in path else f"file://{os.path.abspath(_without_file(path))}"

    @property
    def fs(self) -> Any:
        """The file system, opened at its first use in this process."""
        if self._fs is None:
            try:
                self._fs = self._get_filesystem_fn()()
            except (ImportError, ValueError) as error:
                if isinstance(error, ImportError) or not self._is_known():
                    raise ValueError(
                        f"{self!r}: fsspec has no file system for {self.protocol}:// here ({error}); install the package "
                        "that brings it (s3fs, gcsfs, adlfs, ...) on the driver and on the executors"
                    ) from error
                raise ValueError(f"{self!r}: {self.protocol}:// cannot be opened: {error}; see storage_options") from error
        return self._fs

    def _get_filesystem_fn(self) -> Callable[[], Any]:
        """A function that opens the file system."""
        import fsspec

        # A URL may say more than a path: abfs://container@account.dfs.core.windows.net names the account.
        said = fsspec.get_filesystem_class(self.protocol)._get_kwargs_from_urls(self.prefix_path)
        return functools.partial(fsspec.filesystem, self.protocol, **{**said, **self.storage_options})

    def _is_known(self) -> bool:
        import fsspec

        return self.protocol in fsspec.available_protocols()

    def get_filesystem(self) -> Any:
        return self.fs

    def get_localized_path(self, path: str) -> str:
        """The path as the file system itself names it, without the protocol."""
        return self.fs._strip_protocol(path)

    def get_spark_path(self, path: str) -> str:
        """The path as Hadoop names it: some file systems have another name there."""
        protocol, rest = self.get_full_path(path).split("://", 1)
        return f"{_HADOOP_NAMES.get(protocol, protocol)}://{rest}"

    def saving_runs(self) -> bool:
        return self._save_runs

    def get_train_data_path(self, idx: Optional[int] = None) -> str:
        return self._train_path if idx is None else f"{self._train_path}.{idx}"

    def get_val_data_path(self, idx: Optional[int] = None) -> str:
        return self._val_path if idx is None else f"{self._val_path}.{idx}"

    def get_test_data_path(self, idx: Optional[int] = None) -> str:
        return self._test_path if idx is None else f"{self._test_path}.{idx}"

    def get_runs_path(self) -> str:
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        return posixpath.join(self._runs_path, run_id)

    def get_checkpoint_filename(self) -> str:
        return self._checkpoint_filename

    def get_logs_subdir(self) -> str:
        return "logs"

    def get_checkpoint_path(self, run_id: str) -> Optional[str]:
        """The folder of a run's checkpoints, as in Horovod's last release; get_checkpoint_filename() is the file in it."""
        return self.get_run_path(run_id) if self._save_runs else None

    def get_logs_path(self, run_id: str) -> Optional[str]:
        return posixpath.join(self.get_run_path(run_id), self.get_logs_subdir()) if self._save_runs else None

    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> List[str]:
        """The files of a run that end so, by name; paths of the file system."""
        folder = self.get_localized_path(self.get_run_path(run_id))
        return sorted(path for path in self.fs.ls(folder, detail=False) if path.endswith(suffix)) if self.fs.exists(folder) else []

    def exists(self, path: str) -> bool:
        # Other processes write here too, so a listing that fsspec has cached may be old.
        self.fs.invalidate_cache()
        return self.fs.exists(self.get_localized_path(path))

    def read(self, path: str) -> bytes:
        return self.fs.cat_file(self.get_localized_path(path))

    def read_text(self, path: str) -> str:
        return self.read(path).decode()

    def write(self, path: str, content: bytes) -> None:
        """Whole or not at all: a reader sees the file as it was or as it is now."""
        path = self.get_localized_path(path)
        if self.protocol not in _LOCAL:
            self.fs.pipe_file(path, content)  # object stores show a file when it is complete
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        beside = f"{path}.{uuid.uuid4().hex[:8]}.part"
        try:
            with open(beside, "wb") as out:
                out.write(content)
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise

    def write_text(self, path: str, text: str) -> None:
        self.write(path, text.encode())

    def remove(self, path: str) -> None:
        """The file or folder, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm(self.get_localized_path(path), recursive=True)

    def discard(self, path: str) -> None:
        """As remove(), of what nobody needs any more: where that is not possible, it stays, and a warning says so."""
        try:
            self.remove(path)
        except Exception as error:  # of whatever file system this is
            warnings.warn(f"{path} cannot be removed, and stays: {type(error).__name__}: {error}")

    def names_in(self, path: str) -> List[str]:
        """Of the files and folders in a folder."""
        self.fs.invalidate_cache()
        return [posixpath.basename(name.rstrip("/")) for name in self.fs.ls(self.get_localized_path(path), detail=False)]

    def is_parquet_dataset(self, path: str) -> bool:
        try:
            self.get_parquet_dataset(path)
        except (OSError, ValueError):  # pyarrow's ArrowInvalid is a ValueError
            return False
        return True

    def get_parquet_dataset(self, path: str) -> Any:
        """pyarrow's view of the Parquet files of a folder, or where it has none, of those that its manifest names."""
        import pyarrow.parquet

        from horovod.spark.common import dataset

        found = None if dataset.data_files(self, path) else dataset.read_manifest(self, path)
        if found is None:
            return pyarrow.parquet.ParquetDataset(self.get_localized_path(path), filesystem=self.fs)
        # The folders' names are no column of the data.
        return pyarrow.parquet.ParquetDataset(found.files, filesystem=self.fs, partitioning=None)

    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], Any]:
        """A context manager's function: a folder of this machine for what a run writes, which `sync_fn` takes to the
        store."""

        @contextlib.contextmanager
        def folder() -> Iterator[str]:
            path = tempfile.mkdtemp(prefix="horovod-run-")
            try:
                yield path
            finally:
                shutil.rmtree(path, ignore_errors=True)

        return folder

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        """A function that takes the files of a local folder to the run's folder in the store.

        Each further call takes those that changed since the call before: it is made after each epoch."""
        target = self.get_run_path(run_id)
        sent: Dict[str, Tuple[int, int]] = {}

        def sync(local_path: str) -> None:
            for folder, _, names in os.walk(local_path):
                for name in names:
                    local = os.path.join(folder, name)
                    path = os.path.relpath(local, local_path)
                    facts = os.stat(local)
                    state = (facts.st_mtime_ns, facts.st_size)
                    if sent.get(path) == state:
                        continue
                    remote = posixpath.join(target, path)
                    self.fs.makedirs(self.get_localized_path(posixpath.dirname(remote)), exist_ok=True)
                    self._send(local, remote)
                    sent[path] = state

        return sync

    def _send(self, local: str, remote: str) -> None:
        """A file of this machine to a path of the store."""
        self.fs.put_file(local, self.get_localized_path(remote))

    def check_shared(self, session: Any) -> None:
        """RuntimeError unless this driver, Spark's writers and Spark's executors see the same folder.

        Executors must also have what ranks read with. Called before any data is written."""
        from horovod.spark.common import store_check

        store_check.check(self, session)

    def wait_for_spark(self, session: Any, folder: str) -> None:
        """Returns when this process sees the files that Spark has written into a folder, as most file systems show them at once."""


class FilesystemStore(AbstractFilesystemStore):
    """Any file system of fsspec: file, s3, gs, abfs, hdfs, ..."""


class LocalStore(FilesystemStore):
    """Horovod's older name for a store on a path of this machine."""


class HDFSStore(AbstractFilesystemStore):
    """Hadoop's file system, through pyarrow's libhdfs. `driver` is accepted: there is one driver now."""

    def __init__(
        self,
        prefix_path: str,
        host: Optional[str] = None,
        port: Optional[int] = None,
        user: Optional[str] = None,
        kerb_ticket: Optional[str] = None,
        driver: str = "libhdfs",
        extra_conf: Optional[Dict[str, str]] = None,
        temp_dir: Optional[str] = None,
        storage_options: Optional[Dict[str, Any]] = None,
        **kwargs: Any,
    ) -> None:
        path = str(prefix_path)
        authority = path.split("://", 1)[1].split("/", 1)[0] if "://" in path else ""
        given_host, _, given_port = authority.partition(":")
        given = {"host": host or given_host or "default", "port": port or int(given_port or 0), "user": user,
                 "kerb_ticket": kerb_ticket, "extra_conf": extra_conf}  # fmt: skip
        self._hdfs_kwargs = {name: value for name, value in given.items() if value is not None}
        self._root = f"hdfs://{authority}"
        super().__init__(path, storage_options={**self._hdfs_kwargs, **(storage_options or {})}, **kwargs)

    @classmethod
    def matches(cls, path: str) -> bool:
        return path.startswith("hdfs://")

    def get_full_path(self, path: str) -> str:
        """A plain path is one of the name node that the store was made with."""
        if "://" in path and not self.matches(path):
            raise ValueError(f"HDFSStore takes a path or hdfs://HOST:PORT/PATH, not {path!r}")
        return path if "://" in path else f"{self._root}{path}"

    def _get_filesystem_fn(self) -> Callable[[], Any]:
        from horovod.spark.common import hdfs

        hdfs.find_classes()
        return functools.partial(hdfs.HdfsFiles, **self.storage_options)

    def _send(self, local: str, remote: str) -> None:
        with open(local, "rb") as file:
            self.fs.upload(remote, file)

    def get_localized_path(self, path: str) -> str:
        """No connection is needed to say it."""
        return "/" + path.split("://", 1)[1].partition("/")[2] if "://" in path else path


class DBFSLocalStore(AbstractFilesystemStore):
    """Databricks' file system through its mount: /dbfs for ranks, dbfs:/ for Spark. A volume of Unity Catalog is at /Volumes for
    ranks, and at dbfs:/Volumes for Spark, which asks the catalog whether it may."""

    @classmethod
    def matches(cls, path: str) -> bool:
        return path.startswith("dbfs:/") or (is_databricks() and _without_file(path).startswith(("/dbfs/", _VOLUMES)))

    @classmethod
    def matches_dbfs(cls, path: str) -> bool:
        """Horovod's name for matches(). A path with a host, which Databricks has not, is none."""
        return cls.matches(path) and not path.startswith("dbfs://")

    def get_full_path(self, path: str) -> str:
        return f"file://{self.normalize_path(path)}"

    @staticmethod
    def normalize_path(path: str) -> str:
        """The path under the mount, from any of its forms. ValueError: it is none, or begins with the name of a host."""
        if path.startswith("dbfs://") and not path.startswith("dbfs:///"):
            raise ValueError(f"DBFSLocalStore takes dbfs:/PATH or /dbfs/PATH, not {path!r}; is there one / too many?")
        if path.startswith("dbfs:/"):
            within = "/" + path[len("dbfs:/") :].lstrip("/")
            return within if within.startswith(_VOLUMES) else f"/dbfs{within}"
        said, path = path, _without_file(path)
        if not f"{path}/".startswith(("/dbfs/", _VOLUMES)):  # the driver's own disk, which nobody else sees
            raise ValueError(f"DBFSLocalStore takes dbfs:/PATH, /dbfs/PATH or /Volumes/PATH, not {said!r}")
        return path[len("/dbfs") :] if path.startswith(f"/dbfs{_VOLUMES}") else path

    def get_spark_path(self, path: str) -> str:
        path = self.normalize_path(path)
        return f"dbfs:{path if path.startswith(_VOLUMES) else path[len('/dbfs') :]}"

    def wait_for_spark(self, session: Any, folder: str) -> None:
        """The mount may show them later. RuntimeError after 30 s."""
        urls = session.read.format("binaryFile").load(self.get_spark_path(folder)).inputFiles()
        wait_for_files([self.get_full_path(url) for url in urls if self.matches(url)])


def _without_file(path: str) -> str:
    """A path of this machine without its protocol, which Java writes as file:/PATH and others as file:///PATH."""
    if path.startswith("file://"):
        return path[len("file://") :]
    return path[len("file:") :] if path.startswith("file:/") else path


def wait_for_files(urls: Sequence[str]) -> None:
    """Returns when a mount shows all these files. RuntimeError after 30 s."""
    deadline = time.monotonic() + _SHOWN_S
    missing = [unquote(urlparse(url).path) for url in urls]
    while missing := [path for path in missing if not os.path.exists(path)]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"Timeout while waiting for all parquet-store files to appear at urls {missing}")
        time.sleep(_LOOK_S)


class AdlsStore(FilesystemStore):
    """Azure's name for a store on abfs://, as Synapse's notebooks make it."""

    @staticmethod
    def create(
        prefix_path: str, storage_options: Optional[Dict[str, Any]] = None, save_runs: bool = True, **kwargs: Any
    ) -> "AdlsStore":
        return AdlsStore(prefix_path, storage_options=storage_options, save_runs=save_runs, **kwargs)
