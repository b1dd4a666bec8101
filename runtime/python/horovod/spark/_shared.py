"""Whether the driver and the executors see the same files: each side writes a file that the other looks for."""

import dataclasses
import secrets
from typing import Any, Dict


@dataclasses.dataclass
class SharedFolder:
    """A folder of one check, in a store. It travels to the tasks; options with secrets in them are in no text."""

    url: str
    options: Dict[str, Any] = dataclasses.field(repr=False)
    word: str  # what the files hold

    @classmethod
    def of(cls, store: Any) -> "SharedFolder":
        """In a store of horovod.spark.common.store, or at a URL or path."""
        prefix = str(getattr(store, "prefix_path", store)).rstrip("/")
        options = dict(getattr(store, "storage_options", None) or {})
        word = secrets.token_hex(8)
        return cls(f"{prefix}/hvd-check-{word}", options, word)

    def _file_system(self) -> Any:
        import fsspec

        return fsspec.core.url_to_fs(self.url, **self.options)

    def write(self, name: str) -> None:
        files, folder = self._file_system()
        files.makedirs(folder, exist_ok=True)
        with files.open(f"{folder}/{name}", "w") as file:
            file.write(self.word)

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
            files, folder = self._file_system()
            files.invalidate_cache()
            with files.open(f"{folder}/{name}", "r") as file:
                found = file.read()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        else:
            why = "" if found == self.word else "it holds something else"
        return f"the store is not shared, the file {name} of {self.url} is not seen ({why})" if why else ""

    def remove(self) -> None:
        """What the check wrote."""
        try:
            files, folder = self._file_system()
            files.rm(folder, recursive=True)
        except Exception:
            pass  # it was not written, and the check has reported why
