"""What ranks print, in a file on the driver."""

import os
import re
import sys
import tempfile
import threading
from typing import IO, Optional

# A line of hvdrun, or of libhvd in a rank, that a user must see.
_WARNING = re.compile(r"^(?:[^\n]*\[\d+\]<stderr>:)?hvd(?:run)?: (?:warning|error|defect)\b.*\n?", re.MULTILINE)
# A file of this size, in bytes, becomes the one with ".1", so that a job leaves twice as much at most.
_MOST_BYTES = 256 * 2**20


class KeptOutput:
    """Takes the lines that hvdrun prints. Warnings are shown on sys.stderr; all goes into a file, which begins with the first line
    and whose path is told then. Thread: any."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._path = ""
        self._file: Optional[IO[str]] = None

    def write(self, text: str) -> None:
        """OSError: the file cannot be written; warnings were shown."""
        if not text:
            return
        sys.stderr.write("".join(_WARNING.findall(text)))
        with self._lock:
            file = self._begun() if self._file is None else self._file
            file.write(text)
            file.flush()
            if file.tell() >= self._most_bytes:
                self._file = None
                file.close()
                os.replace(self._path, f"{self._path}.1")

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()

    def _begun(self) -> IO[str]:
        if self._path:
            self._file = open(self._path, "w", encoding="utf-8", errors="replace")
            return self._file
        number, self._path = tempfile.mkstemp(prefix="horovodrunner-", suffix=".log")
        self._file = os.fdopen(number, "w", encoding="utf-8", errors="replace")
        sys.stderr.write(
            f"HorovodRunner: what the ranks print is kept in {self._path} on the driver; "
            'driver_log_verbosity="all" shows it here\n'
        )
        return self._file
