"""What runs in a Spark task: it starts the agent, waits for it, and does nothing else.

Spark's workers are used again for other tasks with the environment that they have, so nothing is set here for the worker
itself. The agent gets the key of the call as the first line of its standard input, which stays open as long as the task lives: when
the worker is killed, or Spark ends the task, the agent sees the end and stops its rank.
"""

import dataclasses
import os
import subprocess
import sys
import threading
from typing import IO, Any, Dict, List, Optional

import horovod

# The variable with the path of the task's Python, for the rank.
PYTHON = "HVD_SPARK_PYTHON"
# The variable with the addresses of the task's GPUs as Spark names them, with commas between.
GPUS = "HVD_SPARK_GPUS"
# Spark's variables for its own worker. The worker's secret does not concern ranks, and ranks may write compiled
# modules.
_NOT_FOR_RANKS = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_PORT", "PYTHONDONTWRITEBYTECODE")
# The number of lines of the agent's own messages that are kept for the text of an error.
_KEPT_LINES = 5
# The time in seconds to read the agent's standard error after its end; a stray process of a rank may still hold it.
_LAST_WORDS_S = 1.0


def check_version(version: str) -> None:
    """RuntimeError where the executor has another release of this package than the driver, whose words it may not know."""
    if version != horovod.__version__:
        raise RuntimeError(
            f"the driver has hvdrun {version}, and {sys.executable} on {os.uname().nodename} has {horovod.__version__}; "
            "install the same release in both"
        )


class _LastWords(threading.Thread):
    """Passes on what the agent says of itself to the worker's standard error, and keeps its end."""

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
    """What each task of a stage is told. It travels in Spark's closure."""

    key: str
    tasks: int
    place: List[str]  # where hvdrun is to be called, as the agent's arguments
    version: str = horovod.__version__

    def run(self, partition: int, environment: Optional[Dict[str, str]] = None) -> bytes:
        """Starts the agent of this partition and waits for its end. RuntimeError when it could not do its work."""
        from horovod.runner._job import find_program

        check_version(self.version)
        command = [find_program("hvdrun-agent"), "call", "spark", *self.place]
        # The standard output of a worker may be its connection to Spark.
        agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), stderr=subprocess.PIPE,
                                 env=environment or environment_of_ranks())  # fmt: skip
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
        return b""


def gpu_addresses() -> List[str]:
    """The GPUs that Spark gave to this task, in a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    resources: Dict[str, Any] = context.resources() if context is not None else {}
    return list(resources["gpu"].addresses) if "gpu" in resources else []


def environment_of_ranks() -> Dict[str, str]:
    """This worker's environment as ranks may have it, in a task."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_RANKS}
    environment[PYTHON] = sys.executable
    gpus = gpu_addresses()
    if gpus:
        environment[GPUS] = ",".join(gpus)
        # Where the executor has a list of its own, Spark's addresses are positions in it.
        own = [gpu for gpu in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        numbers = all(gpu.isdigit() for gpu in gpus)
        mapped = [own[int(gpu)] for gpu in gpus] if own and numbers and max(map(int, gpus)) < len(own) else gpus
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(mapped)
    return environment
