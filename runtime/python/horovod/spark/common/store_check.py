"""Shows, before any data is written, that everybody who needs a store sees the same one.

Spark writes with Hadoop's credentials, ranks read with fsspec's. So each side writes a word that the other reads. A
local path on a cluster of several machines is the usual mistake, and would otherwise show as missing files in the
training.
"""

import contextlib
import socket
import uuid
from typing import Any, List

# The most executors that are asked; a fault of the set-up shows on the first few.
_MAX_TASKS = 32
# The modules that a rank's reader imports.
_MODULES = ("numpy", "pyarrow", "fsspec")


def check(store: Any, session: Any) -> None:
    """See AbstractFilesystemStore.check_shared()."""
    word = uuid.uuid4().hex
    folder = f"{store.prefix_path.rstrip('/')}/_hvd_check_{word[:8]}"
    try:
        _write(store, folder, word)
        _spark_writes(store, session, folder, word)
        for answer in sorted(set(_ask_executors(store, session, folder, word))):
            if answer:
                raise RuntimeError(answer)
    finally:
        with contextlib.suppress(Exception):  # the error of the check says more
            store.remove(folder)


def _advice(store: Any) -> str:
    if store.protocol in ("file", "local"):
        return "a local path must be a mount that all machines share; or use a store such as s3://, abfs:// or hdfs://"
    return "look at the credentials: Spark's come from its Hadoop configuration, the ranks' from storage_options"


def _write(store: Any, folder: str, word: str) -> None:
    try:
        store.write_text(f"{folder}/driver", word)
    except Exception as error:
        raise RuntimeError(
            f"{store!r}: the driver cannot write there: {type(error).__name__}: {error}; {_advice(store)}"
        ) from None


def _spark_writes(store: Any, session: Any, folder: str, word: str) -> None:
    """Hadoop's side writes, fsspec's side of the driver reads."""
    try:
        frame = session.range(0, 1, 1, 1).selectExpr(f"'{word}' as value")
        # Where Hadoop is told to compress what it writes, the word would not be readable.
        frame.write.option("compression", "none").text(store.get_spark_path(f"{folder}/spark"))
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else ""
        raise RuntimeError(
            f"{store!r}: Spark cannot write there: {type(error).__name__}: {first}; {_advice(store)}"
        ) from error
    with contextlib.suppress(Exception):  # what is found says it
        store.wait_for_spark(session, f"{folder}/spark")
    found = _words(store, folder)
    if word not in found:
        raise RuntimeError(f"{store!r}: the driver does not see what Spark has written there; {_advice(store)}")


def _words(store: Any, folder: str) -> List[str]:
    """What Spark has written, as this side reads it."""
    store.fs.invalidate_cache()
    inside = store.get_localized_path(f"{folder}/spark")
    files = [path for path in store.fs.find(inside) if path.rsplit("/", 1)[-1].startswith("part-")]
    return [store.fs.cat_file(path).decode().strip() for path in files]


def _ask_executors(store: Any, session: Any, folder: str, word: str) -> List[str]:
    """What is wrong, as one text for each task; empty where nothing is."""
    from horovod.spark import _session

    tasks = max(2, min(_session.active().default_parallelism(), _MAX_TASKS))
    frame = session.range(0, tasks, 1, tasks)
    look = _plain_udf(lambda _: look_from_executor(store, folder, word))
    try:
        return [row[0] for row in frame.select(look(frame["id"])).collect()]
    except Exception as error:
        last = [line for line in str(error).strip().splitlines() if line.strip()]
        raise RuntimeError(
            f"{store!r}: the executors cannot look at it: {last[-1] if last else type(error).__name__}; is the package "
            "horovod installed in their Python?"
        ) from error


def _plain_udf(function: Any) -> Any:
    """Without Arrow, which may be what is missing."""
    from pyspark.sql.functions import udf

    try:
        return udf(function, "string", useArrow=False)
    except TypeError:  # Spark 3.4
        return udf(function, "string")


def look_from_executor(store: Any, folder: str, word: str) -> str:
    """What is wrong on this machine; empty: nothing is."""
    import importlib

    here = socket.gethostname()
    for module in _MODULES:
        try:
            importlib.import_module(module)
        except ImportError as error:
            return (
                f"the executor on {here} cannot import {module}, which reads the data ({error}); pip install it there"
            )
    try:
        store.get_filesystem()
    except ValueError as error:  # which package is missing
        return f"the executor on {here}: {error}"
    try:
        reason = None if store.read_text(f"{folder}/driver") == word else ""
    except Exception as error:
        reason = f": {type(error).__name__}: {error}"
    if reason is not None:
        return f"{store!r}: the executor on {here} does not see what the driver has written there{reason}; {_advice(store)}"
    try:
        store.write_text(f"{folder}/{uuid.uuid4().hex}", word)
    except Exception as error:
        return (
            f"{store!r}: the executor on {here} cannot write there, as rank 0 does its checkpoints: {type(error).__name__}: "
            f"{error}; {_advice(store)}"
        )
    return ""
