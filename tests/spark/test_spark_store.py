"""Stores: which class a path gets, where things stand in it, and that its options never show. Needs no Spark."""

import errno
import os
import pathlib
import pickle
import time
import warnings
from unittest.mock import Mock

import pytest

pytest.importorskip("fsspec", reason="fsspec is not installed here")

from horovod.spark.common.store import (  # noqa: E402
    AdlsStore, DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, Store,
)  # fmt: skip
from horovod.spark.common.util import is_databricks  # noqa: E402


def test_what_spark_has_written_is_waited_for_until_the_mount_of_databricks_shows_it(monkeypatch):
    reader, looks = Mock(), []
    reader.format.return_value.load.return_value.inputFiles.return_value = ["dbfs:/w/rows/split%3Dtrain/a.parquet", "s3://b/x"]
    monkeypatch.setattr(os.path, "exists", lambda path: looks.append(path) or len(looks) > 2)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    store = DBFSLocalStore("dbfs:/w")
    store.wait_for_spark(Mock(read=reader), f"{store.prefix_path}/rows")
    reader.format.return_value.load.assert_called_with("dbfs:/w/rows")
    assert looks == ["/dbfs/w/rows/split=train/a.parquet"] * 3


def test_each_path_gets_its_class(monkeypatch):
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)
    assert type(Store.create("/tmp/x")) is FilesystemStore and type(Store.create("s3://bucket/x")) is FilesystemStore
    assert isinstance(Store.create("hdfs://namenode:8020/x"), HDFSStore)
    assert isinstance(Store.create("dbfs:/x"), DBFSLocalStore)
    assert type(Store.create("/dbfs/x")) is FilesystemStore
    assert not is_databricks()
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "16")
    assert is_databricks()
    for path in ("/dbfs/x", "file:/dbfs/x", "file:///dbfs/x"):
        assert isinstance(Store.create(path), DBFSLocalStore) and DBFSLocalStore.matches_dbfs(path)
    assert not DBFSLocalStore.matches_dbfs("dbfs://x") and not DBFSLocalStore.matches_dbfs("/x")
    with pytest.raises(ValueError, match="is there one / too many"):
        Store.create("dbfs://tmp/x")


def test_java_s_form_of_a_local_path_is_that_path():
    store = Store.create("file:/tmp/x")
    assert store.prefix_path == "file:///tmp/x" and store.get_localized_path(store.prefix_path) == "/tmp/x"


def test_the_places_in_a_store():
    store = Store.create("s3://bucket/x", save_runs=True)
    assert store.get_train_data_path() == "s3://bucket/x/intermediate_train_data"
    assert store.get_val_data_path(3) == "s3://bucket/x/intermediate_val_data.3"
    assert store.get_test_data_path() == "s3://bucket/x/intermediate_test_data"
    assert store.get_checkpoint_path("r") == store.get_run_path("r") == "s3://bucket/x/runs/r"
    assert store.get_logs_path("r") == "s3://bucket/x/runs/r/logs" and store.saving_runs()
    assert store.get_spark_path(store.prefix_path) == "s3a://bucket/x"
    other = Store.create("/tmp/x", save_runs=False, runs_path="/elsewhere", checkpoint_filename="c.pt")
    assert other.get_runs_path() == "file:///elsewhere" and other.get_checkpoint_filename() == "c.pt"
    assert other.get_checkpoint_path("r") is None and other.get_logs_path("r") is None


def test_the_mount_of_databricks_has_two_names():
    for path in ("dbfs:/a/b", "dbfs:///a/b", "/dbfs/a/b", "file:/dbfs/a/b", "file:///dbfs/a/b"):
        store = DBFSLocalStore(path)
        assert store.get_localized_path(store.prefix_path) == "/dbfs/a/b"
        assert store.get_spark_path(store.get_runs_path()) == "dbfs:/a/b/runs"


def test_a_path_that_is_not_on_the_mount_of_databricks_is_refused():
    for path in ("/tmp/x", "s3://b/a", "file:///tmp/x", "/dbfsx", "relative"):
        for take in (DBFSLocalStore, DBFSLocalStore.normalize_path, lambda path: DBFSLocalStore("/dbfs/a", runs_path=path)):
            with pytest.raises(ValueError, match=f"takes dbfs:/PATH, /dbfs/PATH or /Volumes/PATH, not '{path}'"):
                take(path)


def test_a_remote_store_is_what_a_rank_asks_of_it(tmp_path):
    store = Store.create(str(tmp_path), "/elsewhere/train")
    remote = store.to_remote("r", 3)
    assert remote.train_data_path == "file:///elsewhere/train.3" and remote.val_data_path == store.get_val_data_path(3)
    assert remote.run_path == remote.checkpoint_path == store.get_run_path("r") and remote.logs_path == store.get_logs_path("r")
    assert (remote.saving_runs, remote.checkpoint_filename, remote.logs_subdir) == (True, "checkpoint", "logs")
    with remote.get_local_output_dir() as folder:
        (pathlib.Path(folder) / "a").write_text("a")
        remote.sync(folder)
    assert store.read_text(f"{remote.run_path}/a") == "a"


def test_a_volume_of_unity_catalog_has_two_names(monkeypatch):
    """Ranks have it as a path of their node, and Spark asks the catalog."""
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "16")
    for path in ("/Volumes/c/s/v", "dbfs:/Volumes/c/s/v", "file:/Volumes/c/s/v", "/dbfs/Volumes/c/s/v"):
        store = Store.create(path)
        assert isinstance(store, DBFSLocalStore) and store.get_localized_path(store.prefix_path) == "/Volumes/c/s/v", path
        assert store.get_spark_path(store.get_runs_path()) == "dbfs:/Volumes/c/s/v/runs"
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION")
    assert type(Store.create("/Volumes/disk/x")) is FilesystemStore  # a disk of another machine


def test_hadoop_s_host_comes_from_the_url_or_the_arguments():
    assert {"host": "namenode", "port": 8020}.items() <= HDFSStore("hdfs://namenode:8020/x").storage_options.items()
    assert {"host": "default", "port": 0}.items() <= HDFSStore("hdfs:///x").storage_options.items()
    given = HDFSStore("/x", host="h", port=1, user="u", driver="libhdfs3")
    assert HDFSStore("hdfs://namenode:8020/x", runs_path="/runs").get_runs_path() == "hdfs://namenode:8020/runs"
    assert HDFSStore("/x").get_localized_path("hdfs://namenode:8020/x/y") == "/x/y"
    with pytest.raises(ValueError, match="HDFSStore takes a path or hdfs://"):
        HDFSStore("file:///x")
    assert given.prefix_path == "hdfs:///x" and given.storage_options == {"host": "h", "port": 1, "user": "u"}


def test_options_travel_and_never_show():
    store = AdlsStore.create("abfs://container/x", storage_options={"account_name": "a", "sas_token": "SECRET"})
    assert pickle.loads(pickle.dumps(store)).storage_options["sas_token"] == "SECRET"
    assert "SECRET" not in repr(store) + str(store) + store.get_train_data_path() + store.get_run_path("r")
    missing = Store.create("nosuch://x", storage_options={"key": "SECRET"})
    with pytest.raises(ValueError, match="fsspec has no file system for nosuch://") as raised:
        missing.exists("nosuch://x/y")
    assert "SECRET" not in str(raised.value)


def test_a_url_says_which_account_and_what_is_wrong_with_options_is_told():
    import fsspec
    from fsspec.registry import _registry

    class Blobs(fsspec.AbstractFileSystem):
        cachable = False

        def __init__(self, account_name=None, **options):
            super().__init__(**options)
            if account_name is None:
                raise ValueError("Must provide an account_name")
            self.account_name = account_name

        @staticmethod
        def _get_kwargs_from_urls(url):
            account = url.split("://")[1].partition("@")[2].partition(".")[0]
            return {"account_name": account} if account else {}

    fsspec.register_implementation("abfs", Blobs, clobber=True)
    try:
        assert Store.create("abfs://data@mine.dfs.core.windows.net/x").fs.account_name == "mine"
        assert Store.create("abfs://data@mine.d/x", storage_options={"account_name": "other"}).fs.account_name == "other"
        with pytest.raises(ValueError, match="abfs:// cannot be opened: Must provide an account_name; see storage_options"):
            Store.create("abfs://data/x").fs
    finally:
        _registry.pop("abfs")


def test_hadoop_is_asked_for_its_classes(tmp_path, monkeypatch):
    from horovod.spark.common import hdfs

    program = tmp_path / "bin/hadoop"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\ntest "$*" = "classpath --glob" && echo /opt/hadoop/a.jar:/opt/hadoop/b.jar\n')
    program.chmod(0o755)
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path))
    monkeypatch.setenv("CLASSPATH", "/own.jar")
    hdfs.find_classes()
    assert os.environ["CLASSPATH"] == "/own.jar:/opt/hadoop/a.jar:/opt/hadoop/b.jar"
    program.unlink()
    hdfs.find_classes()
    assert os.environ["CLASSPATH"].count("b.jar") == 1


def test_a_score_that_is_no_number_is_not_the_best(tmp_path):
    from horovod.spark.common.checkpoints import Checkpoints

    checkpoints = Checkpoints(LocalStore(str(tmp_path / "store")), "r", 3)
    for epoch, score in enumerate([float("nan"), 2.0, float("nan"), 1.0, 3.0]):
        checkpoints.save(str(score).encode(), epoch, 0, score)
    assert checkpoints.load("best") == b"1.0" and checkpoints.load() == b"3.0"
    # A file system that replaces no file in one step, and a writer that was killed.
    marker = tmp_path / "store/runs/r/checkpoint.json"
    for torn in (b"", marker.read_bytes()[:20]):
        marker.write_bytes(torn)
        assert checkpoints.exists() and checkpoints.load() == b"3.0"


def test_the_best_of_a_fit_is_not_compared_with_those_of_the_runs_fits_before(tmp_path):
    from horovod.spark.common.checkpoints import Checkpoints

    checkpoints = Checkpoints(LocalStore(str(tmp_path / "store")), "r")
    assert checkpoints.begin(1) == 0
    checkpoints.save(b"first", 1, 0, 1.0)
    checkpoints.finish()
    assert checkpoints.begin(2) == 1
    checkpoints.save(b"second", 2, 0, 9.0)
    assert checkpoints.load("best") == b"second"
    assert checkpoints.begin(1) == 1  # this fit was interrupted, so its round goes on


def test_what_cannot_be_removed_stays_and_is_told(tmp_path, monkeypatch):
    store = LocalStore(str(tmp_path / "store"))

    def refuses(*_, **__):
        raise PermissionError("no right to delete")

    monkeypatch.setattr(type(store.fs), "rm", refuses)
    with pytest.warns(UserWarning, match="cannot be removed, and stays: PermissionError"):
        store.discard(store.get_run_path("r"))


def test_a_url_that_lacks_a_slash_is_no_local_folder():
    with pytest.raises(ValueError, match="write hdfs:///..."):
        Store.create("hdfs:/user/me")
    assert Store.create("file:/tmp/store").prefix_path.endswith("/tmp/store")


def test_files_are_written_whole_and_found(tmp_path):
    store = LocalStore(str(tmp_path / "store"))
    path = f"{store.get_checkpoint_path('r')}/{store.get_checkpoint_filename()}"
    assert not store.exists(path) and store.get_checkpoints("r") == []
    store.write(path, b"1")
    store.write(path, b"22")
    store.write_text(path + ".5.pt", "five")
    assert store.read(path) == b"22" and store.read_text(path + ".5.pt") == "five"
    assert store.get_checkpoints("r", ".pt") == [str(tmp_path / "store/runs/r/checkpoint.5.pt")]
    assert sorted(entry.name for entry in (tmp_path / "store/runs/r").iterdir()) == ["checkpoint", "checkpoint.5.pt"]
    store.remove(store.get_run_path("r"))
    store.remove(store.get_run_path("r"))
    assert not store.exists(path)


def test_a_run_s_local_folder_goes_to_the_store(tmp_path):
    store = Store.create(str(tmp_path / "store"))
    with store.get_local_output_dir_fn("r")() as folder:
        for name in ("a", "b/c"):
            target = pathlib.Path(folder) / name
            target.parent.mkdir(exist_ok=True)
            target.write_text(name)
        sync = store.sync_fn("r")
        sync(folder)
        # What did not change is not sent again, so this file stays as it now is in the store.
        store.write_text(store.get_run_path("r") + "/a", "as it was")
        (pathlib.Path(folder) / "b/c").write_text("longer")
        sync(folder)
        assert store.read_text(store.get_run_path("r") + "/a") == "as it was"
        assert store.read_text(store.get_run_path("r") + "/b/c") == "longer"
        (pathlib.Path(folder) / "b/c").write_text("b/c")
        sync(folder)
    assert store.read_text(store.get_run_path("r") + "/b/c") == "b/c" and not pathlib.Path(folder).exists()


def hdfs_here(path):
    """A store of HDFS over this machine's files: there is no Hadoop here."""
    pyarrow_fs = pytest.importorskip("pyarrow.fs")
    from fsspec.implementations.arrow import ArrowFSWrapper

    from horovod.spark.common.hdfs import HdfsFiles

    class Libhdfs:
        """pyarrow's files, with Hadoop's way of making folders, and the one error that libhdfs has for every delete."""

        def __init__(self):
            self._files = pyarrow_fs.LocalFileSystem()
            self.keeps = False

        def __getattr__(self, name):
            return getattr(self._files, name)

        def open_output_stream(self, path, **options):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return self._files.open_output_stream(path, **options)

        def delete_file(self, path):
            if self.keeps or not os.path.exists(path):
                raise OSError(errno.EIO, f"HDFS delete failed for '{path}'. Detail: [errno 5] Input/output error")
            self._files.delete_file(path)

    class Here(HdfsFiles):
        cachable = False

        def __init__(self):
            ArrowFSWrapper.__init__(self, fs=Libhdfs())

    class StoreHere(HDFSStore):
        def _get_filesystem_fn(self):
            return Here

    return StoreHere(str(path))


def test_what_is_not_there_is_removed_from_hdfs_without_an_error(tmp_path):
    from horovod.spark.common import copies, dataset

    store = hdfs_here(tmp_path / "store")
    dataset.write_manifest(store, store.get_val_data_path(), None)  # as every fit without validation does
    copy = f"{store.get_train_data_path()}/copy"
    copies.end(store, copies.begin(store, copy))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copies.remove(store, copy)  # of a driver that was killed before the manifest stood there
    assert not store.exists(copy)
    store.write_text(copy, "kept")
    store.fs.fs.keeps = True
    with pytest.raises(OSError, match="HDFS delete failed"):
        store.remove(copy)


def test_files_for_hdfs_are_uploaded_by_path_and_open_file(tmp_path):
    store = hdfs_here(tmp_path / "store")
    with store.get_local_output_dir_fn("r")() as folder:
        (pathlib.Path(folder) / "sub").mkdir()
        (pathlib.Path(folder) / "sub/a").write_text("of the run")
        store.sync_fn("r")(folder)
        store.fs.upload(f"{folder}/sub/a", str(tmp_path / "by-fsspec"))
    assert (tmp_path / "store/runs/r/sub/a").read_text() == (tmp_path / "by-fsspec").read_text() == "of the run"


def test_a_check_of_the_cluster_looks_where_the_store_is(tmp_path, monkeypatch):
    from horovod.spark._shared import SharedFolder

    monkeypatch.setattr(DBFSLocalStore, "normalize_path", staticmethod(lambda path: path.replace("dbfs:", str(tmp_path))))
    driver = SharedFolder.of("dbfs:/runs")
    driver.write("driver")
    task = pickle.loads(pickle.dumps(driver))
    assert task.why_missing("driver") == task.why_not_written("task-0") == driver.why_missing("task-0") == ""
    assert "task-1 of file:///" in driver.why_missing("task-1")
    driver.remove()
    assert list((tmp_path / "runs").iterdir()) == []
    assert isinstance(SharedFolder.of("hdfs://namenode:8020/x").store, HDFSStore)  # whose libhdfs needs Hadoop's classes
    assert "SECRET" not in repr(SharedFolder.of(Store.create("s3://bucket/x", storage_options={"key": "SECRET"})))
