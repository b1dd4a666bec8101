"""How a function gets to the ranks of a job, and how what they return gets back.

Ranks on this machine: as files, in a folder that only this user can enter. Ranks elsewhere: the function in the
environment, which hvdrun brings to them inside its session, and the results as lines of their standard output, which come
back inside it. Those lines begin with a word that only this job's processes know, so that nothing else that a rank prints
is taken for one.
"""

import base64
import os
import pathlib
import re
import secrets
import sys
import zlib
from typing import Dict, List, Optional

import cloudpickle

FOLDER = "HVD_RUN_FOLDER"
WORD = "HVD_RUN_WORD"
PARTS = "HVD_RUN_PARTS"
PART = "HVD_RUN_PART_"

# The kernel takes 128 KiB for one variable, and 2 MiB for all variables and arguments together, with 8 MiB of stack.
_PART_BYTES = 96 * 1024
_MAX_BYTES = 1_400_000
_LINE_BYTES = 48 * 1024


# ---- in the process that runs the job ----


class Folder:
    """For ranks on this machine."""

    def __init__(self, path: str, payload: bytes) -> None:
        self.path = pathlib.Path(path)
        (self.path / "function").write_bytes(payload)
        self.environment = {FOLDER: path}

    def take(self, line: bytes) -> bytes:
        """What of a line of output is for the user, and no part of a result."""
        return line

    def result(self, rank: int) -> Optional[bytes]:
        """What the rank left, None if nothing."""
        path = self.path / f"result.{rank}"
        return path.read_bytes() if path.exists() else None


class Lines:
    """For ranks on other hosts."""

    def __init__(self, payload: bytes) -> None:
        text = base64.b64encode(zlib.compress(payload)).decode()
        if len(text) > _MAX_BYTES:
            raise ValueError(
                f"the function with its arguments and all that it refers to is {len(payload)} bytes, {len(text)} on the way "
                f"to other hosts; more than the {_MAX_BYTES} that fit. Put large data into files, and read them in the "
                "function"
            )
        word = secrets.token_hex(16)
        parts = [text[begin : begin + _PART_BYTES] for begin in range(0, len(text), _PART_BYTES)]
        self.environment = {WORD: word, PARTS: str(len(parts))}
        self.environment.update({f"{PART}{number}": part for number, part in enumerate(parts)})
        self._word = word.encode()
        self._results: Dict[int, List[bytes]] = {}
        self._complete: Dict[int, bytes] = {}

    def take(self, line: bytes) -> bytes:
        begun, found, rest = line.partition(self._word + b" ")
        if not found:
            return line
        number, kind, text = rest.rstrip(b"\n").split(b" ", 2)
        parts = self._results.setdefault(int(number), [])
        parts.append(text)
        if kind == b"end":
            self._complete[int(number)] = zlib.decompress(base64.b64decode(b"".join(parts)))
        # The function may have left its last line open.
        return b"" if re.fullmatch(rb"\[\d+\]<stdout>:", begun) else begun + b"\n"

    def result(self, rank: int) -> Optional[bytes]:
        return self._complete.get(rank)


# ---- in a rank ----


def receive() -> bytes:
    """The function, in a rank; what carried it is taken out of the environment, so that programs that it starts do not have
    it."""
    if FOLDER in os.environ:
        return (pathlib.Path(os.environ[FOLDER]) / "function").read_bytes()
    text = "".join(os.environ.pop(f"{PART}{number}") for number in range(int(os.environ.pop(PARTS))))
    return zlib.decompress(base64.b64decode(text))


class Reply:
    """The way back; made before the function runs, which may change the environment and standard output."""

    def __init__(self) -> None:
        self._rank = int(os.environ["HVD_RANK"])
        self._folder = os.environ.pop(FOLDER, None)
        self._word = os.environ.pop(WORD, "")
        self._output = os.dup(1)

    def send(self, value: object) -> None:
        payload = cloudpickle.dumps(value)
        if self._folder is not None:
            path = pathlib.Path(self._folder) / f"result.{self._rank}"
            part = path.with_suffix(f".{self._rank}.part")
            part.write_bytes(payload)
            part.rename(path)
            return
        sys.stdout.flush()
        text = base64.b64encode(zlib.compress(payload, 1)).decode()
        lines = []
        for begin in range(0, len(text), _LINE_BYTES):
            kind = "end" if begin + _LINE_BYTES >= len(text) else "part"
            lines.append(f"{self._word} {self._rank} {kind} {text[begin : begin + _LINE_BYTES]}\n")
        view = memoryview("".join(lines).encode())
        while view:
            view = view[os.write(self._output, view) :]
