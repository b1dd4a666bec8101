"""What runs in a Spark task: it starts the agent, waits for it, and does nothing else.

Spark's workers are used again for other tasks with the environment that they have, so nothing is set here for the worker
itself. The agent gets the key of the call as the first line of its standard input, which stays open as long as the task lives: when
the worker is killed, or Spark ends the task, the agent sees the end and stops its rank.
"""

import dataclasses
import os
import subprocess
import sys
from typing import Dict, List

# The Python that the task runs in, for the rank.
PYTHON = "HVD_SPARK_PYTHON"
# The addresses of the task's GPUs as Spark has them, with commas between.
GPUS = "HVD_SPARK_GPUS"
# Of Spark's own, for its own: a worker's secret is nothing for ranks, and ranks may write compiled modules.
_NOT_FOR_RANKS = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_PORT", "PYTHONDONTWRITEBYTECODE")


@dataclasses.dataclass
class Order:
    """What each task of a stage is told. It travels in Spark's closure."""

    key: str
    tasks: int
    place: List[str]  # where hvdrun is to be called, as the agent's arguments

    def run(self, partition: int) -> int:
        """Starts the agent of this partition and waits for its end; its exit code."""
        from horovod.runner._job import find_program

        command = [find_program("hvdrun-agent"), "call", "spark", *self.place]
        # Standard output of a worker may be its conversation with Spark.
        agent = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), stderr=sys.stderr.fileno(), env=_environment()
        )
        try:
            try:
                agent.stdin.write(f"{self.key} {partition} {self.tasks}\n".encode())
                agent.stdin.flush()
            except BrokenPipeError:
                pass  # it has ended, and its exit code tells
            return agent.wait()
        finally:
            agent.stdin.close()  # the agent ends, if it still runs


def gpu_addresses() -> List[str]:
    """The GPUs that Spark gave to this task, in a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    resources = context.resources() if context is not None else {}
    return list(resources["gpu"].addresses) if "gpu" in resources else []


def _environment() -> Dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_RANKS}
    environment[PYTHON] = sys.executable
    gpus = gpu_addresses()
    if gpus:
        environment[GPUS] = ",".join(gpus)
        # Where the executor has a list of its own, Spark's addresses count in it.
        own = [gpu for gpu in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        numbers = all(gpu.isdigit() for gpu in gpus)
        mapped = [own[int(gpu)] for gpu in gpus] if own and numbers and max(map(int, gpus)) < len(own) else gpus
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(mapped)
    return environment
