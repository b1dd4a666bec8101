"""Who uses a copy of a frame's rows in a store, and the removal of copies that nobody uses.

Drivers that share a store know nothing of each other, and any of them may die. So a copy has a mark, which is a file, for
each use of it, and whoever makes a new copy removes those without marks. What lacks the file that begin() writes is of
somebody else, and is left alone.
"""

import contextlib
import time
import uuid
import warnings
from typing import Any, Container, Iterator, Optional

from horovod.spark.common.dataset import MANIFEST

_MADE = "_hvd_copy"
_MARK = "_hvd_user_"
# A mark that is older is of a driver that was killed: no fit takes so many seconds.
_LONGEST_USE = 30 * 24 * 3600


def begin(store: Any, path: str) -> str:
    """Before the first row of a copy is written; its mark, for end()."""
    mark = _write_mark(store, path)
    store.write_text(f"{path}/{_MADE}", "")
    return mark


def use(store: Any, path: str) -> Optional[str]:
    """A mark in a copy, for end(); None: the copy is not there."""
    if not _stands(store, path):
        return None
    mark = _write_mark(store, path)
    if _stands(store, path):  # remove() looks for marks after it has taken the manifest away
        return mark
    end(store, mark)
    return None


def end(store: Any, mark: Optional[str]) -> None:
    if mark is not None:
        store.discard(mark)


@contextlib.contextmanager
def used(store: Any, path: str) -> Iterator[None]:
    """Keeps the copy at `path`, if there is one, while the context lasts."""
    try:
        mark = use(store, path)
    except OSError:  # copies of others, in a place where this driver only reads
        mark = None
    try:
        yield
    finally:
        end(store, mark)


def remove(store: Any, path: str) -> None:
    """Removes a copy, but not while a driver uses it."""
    manifest = f"{path}/train/{MANIFEST}"
    with _only_warned_of(path):
        if _is_used(store, path):
            return
        said = store.read_text(manifest) if _stands(store, path) else None
        store.remove(manifest)
        if said is not None and _is_used(store, path):  # since a moment ago
            store.write_text(manifest, said)
        else:
            store.remove(path)


def remove_others(store: Any, place: str, kept: Container[str]) -> None:
    """Removes the copies at a place of the store that earlier drivers have left."""
    with _only_warned_of(place):
        for name in store.names_in(place):
            path = f"{place}/{name}"
            if path not in kept and store.exists(f"{path}/{_MADE}"):
                remove(store, path)


@contextlib.contextmanager
def _only_warned_of(path: str) -> Iterator[None]:
    """A fit does not fail because old data stays."""
    try:
        yield
    except Exception as error:  # of whatever file system this is
        warnings.warn(f"{path} has older copies that stay: {type(error).__name__}: {error}")


def _write_mark(store: Any, path: str) -> str:
    mark = f"{path}/{_MARK}{uuid.uuid4().hex[:12]}"
    store.write_text(mark, str(time.time()))
    return mark


def _stands(store: Any, path: str) -> bool:
    return store.exists(f"{path}/train/{MANIFEST}")


def _is_used(store: Any, path: str) -> bool:
    names = store.names_in(path) if store.exists(path) else []
    return any(name.startswith(_MARK) and _is_fresh(store, f"{path}/{name}") for name in names)


def _is_fresh(store: Any, mark: str) -> bool:
    try:
        return time.time() - float(store.read_text(mark)) < _LONGEST_USE
    except FileNotFoundError:  # its use has just ended
        return False
    except ValueError:  # it is just being written
        return True
