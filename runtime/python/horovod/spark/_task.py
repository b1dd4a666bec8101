"""What a Spark task does: it starts the agent with the task's GPUs, and waits for its end.

Spark's workers are used again for other tasks with the environment that they have, so nothing is set here for the worker
itself.
"""

import os
import sys
from typing import Any, Dict, List, Union

from horovod.runner._agent import JoinOrder, Order, Starter

# The variable with the addresses of the task's GPUs as Spark names them, with commas between.
GPUS = "HVD_SPARK_GPUS"
# Spark's variables for its own worker. The worker's secret does not concern ranks, and ranks may write compiled
# modules. How many threads they have is hvdrun's word, which knows how many there are.
_NOT_FOR_RANKS = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_PORT", "PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS")


def run_agent(order: Order, partition: int) -> bytes:
    """A task of the stage."""
    order.run(partition, environment_of_ranks())
    return b""


def run_elastic_agent(order: Union[Order, JoinOrder], number: int, _: int) -> bytes:
    """The task of one rank of an elastic job. It returns why its agent has failed, nothing if that ended in order.

    Spark repeats the task if its executor is lost: before the job begins hvdrun may still take the agent, and one that
    joins may do that again."""
    try:
        Starter().run(order, number, environment_of_ranks())
    except Exception as error:
        return f"{type(error).__name__}: {error}".encode()
    return b""


def gpu_addresses() -> List[str]:
    """The GPUs that Spark gave to this task, in a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    resources: Dict[str, Any] = context.resources() if context is not None else {}
    return list(resources["gpu"].addresses) if "gpu" in resources else []


def _shipped_modules() -> List[str]:
    """Where the files of --py-files and addPyFile() are on this host, which Spark tells its workers' sys.path alone."""
    from pyspark import SparkFiles

    root = SparkFiles.getRootDirectory()
    return [path for path in sys.path if root and (path == root or path.startswith(root + os.sep))]


def environment_of_ranks() -> Dict[str, str]:
    """This worker's environment as ranks may have it, in a task."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_RANKS}
    shipped = _shipped_modules()
    if shipped:
        environment["PYTHONPATH"] = os.pathsep.join([*shipped, *filter(None, [environment.get("PYTHONPATH")])])
    gpus = gpu_addresses()
    if gpus:
        environment[GPUS] = ",".join(gpus)
    if gpus and os.environ.get("HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX") != "1":
        # Where the executor has a list of its own, Spark's addresses are positions in it.
        own = [gpu for gpu in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        numbers = all(gpu.isdigit() for gpu in gpus)
        mapped = [own[int(gpu)] for gpu in gpus] if own and numbers and max(map(int, gpus)) < len(own) else gpus
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(mapped)
    return environment
