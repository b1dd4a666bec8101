"""Names of Horovod's module horovod.spark.runner; what they stand for is hvdrun's work here."""

from horovod.runner.common._absent import absent_function
from horovod.spark import run, run_elastic  # noqa: F401

_task_fn = absent_function("horovod.spark.runner._task_fn")
