"""How a function gets to the ranks of a job, and how their results get back.

Ranks on this machine: as files, in a folder that only this user can enter. Ranks elsewhere: the function in the
environment, which hvdrun brings to them inside its session, and the results as lines of their standard output, which come
back inside it. A function that is too large for that comes with the engine's tasks (Spark, Ray), and only its digest inside the
session. Those lines begin with a word that only this job's processes know, so that nothing else that a rank prints
is taken for one. All that is to be unpickled stands behind a MAC of a key that only the job's processes have, which is in
neither folder nor line.
"""

import base64
import hashlib
import hmac
import os
import pathlib
import re
import secrets
import sys
import zlib
from typing import Callable, Dict, List, Optional

import cloudpickle

FOLDER = "HVD_RUN_FOLDER"
KEY = "HVD_RUN_KEY"
WORD = "HVD_RUN_WORD"
PARTS = "HVD_RUN_PARTS"
PART = "HVD_RUN_PART_"
# The file with a function that an engine's tasks bring, and what the SHA-256 of it must be.
FUNCTION_FILE = "HVD_RUN_FUNCTION_FILE"
DIGEST = "HVD_RUN_DIGEST"
# The largest result that a rank may send, in bytes; any size is allowed if it is 0 or the variable is missing.
MOST = "HVD_RUN_MOST"

# The kernel allows 128 KiB for one variable, and 2 MiB for all variables and arguments together, with 8 MiB of stack.
_PART_BYTES = 96 * 1024
_MAX_BYTES = 1_400_000
_LINE_BYTES = 48 * 1024


_MAC_BYTES = 32


def _proof(key: str, what: str, payload: bytes) -> bytes:
    return hmac.new(bytes.fromhex(key), what.encode() + b"\0" + payload, hashlib.sha256).digest()


def sealed(key: str, what: str, payload: bytes) -> bytes:
    """`what` names the thing and its rank, so that it cannot be taken for another thing of the job."""
    return _proof(key, what, payload) + payload


def opened(key: str, what: str, text: bytes) -> bytes:
    """RuntimeError when that is not what sealed() has made with this key."""
    payload = text[_MAC_BYTES:]
    if not hmac.compare_digest(text[:_MAC_BYTES], _proof(key, what, payload)):
        raise RuntimeError(f"horovod.run: {what} is not what this job has sent, and was not unpickled")
    return payload


def _result_of(rank: int) -> str:
    return f"the result of rank {rank}"


_FUNCTION = "the function"


# ---- in the process that runs the job ----


class Folder:
    """Folder carries results of ranks on this machine."""

    def __init__(self, path: str, payload: bytes) -> None:
        self.path = pathlib.Path(path)
        self._key = secrets.token_hex(32)
        (self.path / "function").write_bytes(sealed(self._key, _FUNCTION, payload))
        self.environment = {FOLDER: path, KEY: self._key}
        self.words: List[str] = []  # for hvdrun

    def take(self, line: bytes) -> bytes:
        """Returns the part of a line of output that is for the user, and not of a result."""
        return line

    def result(self, rank: int) -> Optional[bytes]:
        """Returns what the rank left, or None."""
        path = self.path / f"result.{rank}"
        return opened(self._key, _result_of(rank), path.read_bytes()) if path.exists() else None


class Lines:
    """Lines carries results of ranks on other hosts. `has_tasks`: an engine's tasks can bring a large function, `by_tasks`."""

    def __init__(self, payload: bytes, has_tasks: bool = False) -> None:
        self._key = secrets.token_hex(32)
        text = base64.b64encode(sealed(self._key, _FUNCTION, zlib.compress(payload))).decode()
        self.by_tasks = payload if len(text) > _MAX_BYTES and has_tasks else None
        if self.by_tasks is not None:
            text = ""
        if len(text) > _MAX_BYTES:
            raise ValueError(
                f"the function with its arguments and all that it refers to is {len(payload)} bytes, {len(text)} on the way "
                f"to other hosts; more than the {_MAX_BYTES} that fit. Put large data into files, and read them in the "
                "function"
            )
        word = secrets.token_hex(16)
        parts = [text[begin : begin + _PART_BYTES] for begin in range(0, len(text), _PART_BYTES)]
        self.environment = {WORD: word, PARTS: str(len(parts)), KEY: self._key}
        self.environment.update({f"{PART}{number}": part for number, part in enumerate(parts)})
        if self.by_tasks is not None:
            self.environment[DIGEST] = hashlib.sha256(payload).hexdigest()
        # What ranks say to this process is kept in no file.
        self.words = ["--unkept-after", WORD]
        self._word = word.encode()
        self._results: Dict[int, List[bytes]] = {}
        self._complete: Dict[int, bytes] = {}
        # This is called with each text that a rank sends by log().
        self.on_log: Callable[[str], None] = print

    def take(self, line: bytes) -> bytes:
        begun, found, rest = line.partition(self._word + b" ")
        if not found:
            return line
        number, kind, text = rest.rstrip(b"\n").split(b" ", 2)
        if kind == b"log":
            self.on_log(base64.b64decode(text).decode(errors="replace"))
            return b""
        # A rank that is started again sends a result once more, also where its end came within the first one.
        if kind == b"new":
            self._results[int(number)] = []
        parts = self._results.setdefault(int(number), [])
        parts.append(text)
        if kind == b"end":
            self._complete[int(number)] = base64.b64decode(b"".join(parts))
        # The function may have left its last line open.
        return b"" if re.search(rb"\[\d+\]<stdout>:$", begun) else begun + b"\n"

    def result(self, rank: int) -> Optional[bytes]:
        reply = self._complete.get(rank)
        return None if reply is None else zlib.decompress(opened(self._key, _result_of(rank), reply))

    def results(self) -> List[bytes]:
        """Returns what ranks have sent, whichever there were, by the numbers that they were started with."""
        found = [self.result(rank) for rank in sorted(self._complete)]
        return [reply for reply in found if reply is not None]


# ---- in a rank ----

# The mark of a message for the driver in this rank's standard output; None: there is no driver.
_log_word: Optional[str] = None


def log(message: str) -> bool:
    """Sends a message to the driver, if it comes by lines. False: nobody reads it."""
    if _log_word is None:
        return False
    text = base64.b64encode(message.encode()).decode()
    os.write(1, f"{_log_word} {os.environ['HVD_RANK']} log {text}\n".encode())
    return True


def receive() -> bytes:
    """Returns the function, in a rank. What carried it is removed from the environment, so that programs which it
    starts do not get it. Call it before Reply, which takes the rest."""
    key = os.environ[KEY]
    if FOLDER in os.environ:
        return opened(key, _FUNCTION, (pathlib.Path(os.environ[FOLDER]) / "function").read_bytes())
    text = "".join(os.environ.pop(f"{PART}{number}") for number in range(int(os.environ.pop(PARTS))))
    digest, path = os.environ.pop(DIGEST, ""), os.environ.pop(FUNCTION_FILE, "")
    if digest:
        payload = pathlib.Path(path).read_bytes()
        if not hmac.compare_digest(hashlib.sha256(payload).hexdigest(), digest):
            raise RuntimeError(f"horovod.run: {_FUNCTION} in {path} is not what this job has sent, and was not unpickled")
        return payload
    return zlib.decompress(opened(key, _FUNCTION, base64.b64decode(text)))


class Reply:
    """Reply is the way back. It is made before the function runs, which may change the environment and standard
    output."""

    def __init__(self) -> None:
        self._rank = int(os.environ["HVD_RANK"])
        self._folder = os.environ.pop(FOLDER, None)
        self._word = os.environ.pop(WORD, "")
        self._key = os.environ.pop(KEY)
        self._most = int(os.environ.pop(MOST, "0"))
        self._output = os.dup(1)
        global _log_word
        _log_word = self._word or None

    def check_size(self, result: bytes) -> None:
        """Raises ValueError when the driver will not take so much."""
        if self._most and len(result) > self._most:
            raise ValueError(
                f"the result of rank {self._rank} is {len(result)} bytes, more than the {self._most} that Spark's "
                "spark.driver.maxResultSize lets come to the driver; write it into a file that both can reach, and return "
                "its name"
            )

    def send(self, value: object) -> None:
        payload = cloudpickle.dumps(value)
        if self._folder is not None:
            path = pathlib.Path(self._folder) / f"result.{self._rank}"
            part = path.with_suffix(f".{self._rank}.part")
            part.write_bytes(sealed(self._key, _result_of(self._rank), payload))
            part.rename(path)
            return
        sys.stdout.flush()
        text = base64.b64encode(sealed(self._key, _result_of(self._rank), zlib.compress(payload, 1))).decode()
        lines = [f"{self._word} {self._rank} new \n"]
        for begin in range(0, len(text), _LINE_BYTES):
            kind = "end" if begin + _LINE_BYTES >= len(text) else "part"
            lines.append(f"{self._word} {self._rank} {kind} {text[begin : begin + _LINE_BYTES]}\n")
        view = memoryview("".join(lines).encode())
        while view:
            view = view[os.write(self._output, view) :]
