"""A folder of a run that is written on this machine's disk, such as TensorBoard's logs, and taken to the store.

Loggers append to their files and frameworks rename theirs, which object stores cannot do.
"""

import os
import sys
from typing import Any, Optional


class RunFolder:
    """A context, on rank 0. When it ends, what is in `path` is in the folder `name` of the run in the store."""

    def __init__(self, store: Any, run_id: str, name: str) -> None:
        self._context = store.get_local_output_dir_fn(run_id)()
        self._sync = store.sync_fn(run_id)
        self._name = name
        self._root = ""
        self._has_told = False

    @property
    def path(self) -> str:
        """Valid within the context; nobody has made the folder yet."""
        return os.path.join(self._root, self._name)

    def __enter__(self) -> "RunFolder":
        self._root = self._context.__enter__()
        return self

    def send(self) -> None:
        """Takes to the store what is new. A run goes on without these files: a store that refuses them is told of once."""
        try:
            self._sync(self._root)
        except Exception as error:  # each file system of fsspec has errors of its own
            if not self._has_told:
                self._has_told = True
                what = f"{type(error).__name__}: {error}"
                print(f"horovod: the folder {self._name} of the run does not reach the store: {what}", file=sys.stderr)

    def __exit__(self, *error: Any) -> Optional[bool]:
        self.send()
        return self._context.__exit__(*error)
