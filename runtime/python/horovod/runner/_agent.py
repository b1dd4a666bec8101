"""What an engine's task or actor (Spark, Ray) does on its host: it starts hvdrun's agent, and waits for its end.

The agent gets the key of the call as the first line of its standard input, which stays open as long as the process that
started it lives: when that is killed, the agent sees the end and stops its rank.
"""

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from typing import IO, Dict, List, Optional, Union

import horovod
from horovod.runner._exchange import FUNCTION_FILE
from horovod.runner._job import find_program

# The variable with the path of the Python that started the agent, for the rank.
PYTHON = "HVD_AGENT_PYTHON"
# The number of lines of the agent's own messages that are kept for the text of an error.
_KEPT_LINES = 5
# The time in seconds to read the agent's standard error after its end; a stray process of a rank may still hold it.
_LAST_WORDS_S = 3.0


def check_version(version: str) -> None:
    """RuntimeError where this host has another release of this package than the driver, whose words it may not know."""
    if version != horovod.hvdrun_version:
        raise RuntimeError(
            f"the driver has hvdrun {version}, and {sys.executable} on {os.uname().nodename} has {horovod.hvdrun_version}; "
            "install the same release in both"
        )


class _LastWords(threading.Thread):
    """Passes on what the agent says of itself to this process's standard error, and keeps its end."""

    def __init__(self, source: IO[bytes]) -> None:
        super().__init__(name="hvd-agent-words", daemon=True)
        self._source = source
        self.lines: List[str] = []
        self.start()

    def run(self) -> None:
        for line in self._source:
            text = line.decode(errors="replace")
            self.lines = [*self.lines[1 - _KEPT_LINES :], text.strip()]
            sys.stderr.write(text)
            sys.stderr.flush()


@dataclasses.dataclass
class Order:
    """What each task of a job is told: where hvdrun is to be called, and the key that proves who calls. The key is in no text
    of it, as an engine's log may have."""

    key: str = dataclasses.field(repr=False)
    tasks: int
    place: List[str]  # as the agent's arguments
    version: str = horovod.hvdrun_version
    function: Optional[bytes] = dataclasses.field(default=None, repr=False)  # for the ranks, where hvdrun does not bring it

    def words(self) -> List[str]:
        return ["call", "spark", *self.place]

    def input_of(self, partition: int) -> str:
        return f"{self.key} {partition} {self.tasks}\n"

    def run(self, partition: int, environment: Dict[str, str]) -> None:
        """Starts the agent of this partition, with the environment of its rank, and waits for its end.

        RuntimeError when it could not do its work."""
        Starter().run(self, partition, environment)


@dataclasses.dataclass
class JoinOrder:
    """What a task is told whose agent joins a running job: what hvdrun has written for it (--join-file)."""

    text: str = dataclasses.field(repr=False)  # there is a key in it
    version: str = horovod.hvdrun_version
    function: Optional[bytes] = dataclasses.field(default=None, repr=False)

    @classmethod
    def read(cls, path: pathlib.Path) -> Optional["JoinOrder"]:
        """None where the file is not there: the job has not begun, or is ending."""
        try:
            return cls(path.read_text(encoding="ascii"))
        except FileNotFoundError:
            return None

    def words(self) -> List[str]:
        return ["join", "-", "1"]

    def input_of(self, _: int) -> str:
        return f"{self.text}\n"


class Starter:
    """One agent, from its start to its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._agent: Optional[subprocess.Popen] = None
        self._is_to_end = False

    def run(self, order: Union[Order, JoinOrder], partition: int, environment: Dict[str, str]) -> None:
        """As Order.run()."""
        check_version(order.version)
        if order.function is None:
            return self._run(order, partition, environment)
        with tempfile.NamedTemporaryFile(prefix="hvd-function-") as file:  # mode 0600
            file.write(order.function)
            file.flush()
            self._run(order, partition, {**environment, FUNCTION_FILE: file.name})

    def _run(self, order: Union[Order, JoinOrder], partition: int, environment: Dict[str, str]) -> None:
        command = [find_program("hvdrun-agent"), *order.words()]
        with self._lock:
            if self._is_to_end:
                return
            # The standard output of a task may be its connection to the engine.
            agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), stderr=subprocess.PIPE,
                                     env={**environment, PYTHON: sys.executable})  # fmt: skip
            self._agent = agent
        words = _LastWords(agent.stderr)
        try:
            try:
                agent.stdin.write(order.input_of(partition).encode())
                agent.stdin.flush()
            except BrokenPipeError:
                pass  # it has ended, and its exit code says why
            code = agent.wait()
        finally:
            agent.stdin.close()  # the agent ends, if it still runs
        words.join(_LAST_WORDS_S)
        if code:
            raise RuntimeError(f"hvdrun-agent of partition {partition} on {os.uname().nodename} ended with code {code}: "
                               f"{' '.join(words.lines) or 'it said nothing'}")  # fmt: skip

    def terminate(self) -> None:
        """Sends SIGTERM to the agent: its ranks leave the job, or it ends. One that has not begun does not. On any thread."""
        with self._lock:
            self._is_to_end = True
            if self._agent is not None:
                self._agent.terminate()
