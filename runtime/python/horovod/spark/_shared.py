"""Whether the driver and the executors see the same files: each side writes a file that the other looks for."""

import dataclasses
import os
import secrets
from typing import Any


@dataclasses.dataclass
class SharedFolder:
    """A folder of one check, in a store. It travels to the tasks; options with secrets in them are in no text."""

    store: Any
    url: str
    word: str  # what the files hold

    @classmethod
    def of(cls, store: Any) -> "SharedFolder":
        """In a store of horovod.spark.common.store, or at a URL or path that is one for the estimators."""
        from horovod.spark.common.store import Store

        store = Store.create(os.fspath(store)) if isinstance(store, (str, os.PathLike)) else store
        word = secrets.token_hex(8)
        return cls(store, f"{store.prefix_path.rstrip('/')}/hvd-check-{word}", word)

    def write(self, name: str) -> None:
        self.store.write_text(f"{self.url}/{name}", self.word)

    def why_not_written(self, name: str) -> str:
        """Empty: the file is written."""
        try:
            self.write(name)
            return ""
        except Exception as error:  # each store has exceptions of its own
            return f"cannot write to the store {self.url}: {type(error).__name__}: {error}"

    def why_missing(self, name: str) -> str:
        """Empty: the other side's file is here."""
        try:
            self.store.fs.invalidate_cache()
            found = self.store.read_text(f"{self.url}/{name}")
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        else:
            why = "" if found == self.word else "it holds something else"
        return f"the store is not shared, the file {name} of {self.url} is not seen ({why})" if why else ""

    def remove(self) -> None:
        """What the check wrote."""
        try:
            self.store.remove(self.url)
        except Exception:
            pass  # it was not written, and the check has reported why
