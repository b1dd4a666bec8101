"""For a function that horovod.spark.run runs: what Spark gave to its task."""

import os
from typing import List

from horovod.spark._task import GPUS

__all__ = ["get_available_devices"]


def get_available_devices() -> List[str]:
    """The addresses of the GPUs of this rank's task, as Spark names them; empty where tasks have none."""
    return [gpu for gpu in os.environ.get(GPUS, "").split(",") if gpu]
