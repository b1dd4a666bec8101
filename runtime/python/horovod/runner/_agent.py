"""What an engine's task or actor (Spark, Ray) does on its host: it starts hvdrun's agent, and waits for its end.

The agent gets the key of the call as the first line of its standard input, which stays open as long as the process that
started it lives: when that is killed, the agent sees the end and stops its rank.
"""

import dataclasses
import os
import subprocess
import sys
import threading
from typing import IO, Dict, List

import horovod
from horovod.runner._job import find_program

# The variable with the path of the Python that started the agent, for the rank.
PYTHON = "HVD_AGENT_PYTHON"
# The number of lines of the agent's own messages that are kept for the text of an error.
_KEPT_LINES = 5
# The time in seconds to read the agent's standard error after its end; a stray process of a rank may still hold it.
_LAST_WORDS_S = 1.0


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
    """What each task of a job is told: where hvdrun is to be called, and the key that proves who calls."""

    key: str
    tasks: int
    place: List[str]  # as the agent's arguments
    version: str = horovod.hvdrun_version

    def run(self, partition: int, environment: Dict[str, str]) -> None:
        """Starts the agent of this partition, with the environment of its rank, and waits for its end.

        RuntimeError when it could not do its work."""
        check_version(self.version)
        command = [find_program("hvdrun-agent"), "call", "spark", *self.place]
        # The standard output of a task may be its connection to the engine.
        agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), stderr=subprocess.PIPE,
                                 env={**environment, PYTHON: sys.executable})  # fmt: skip
        words = _LastWords(agent.stderr)
        try:
            try:
                agent.stdin.write(f"{self.key} {partition} {self.tasks}\n".encode())
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
