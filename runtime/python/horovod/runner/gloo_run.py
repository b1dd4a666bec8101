"""Names of Horovod's module that starts ranks without MPI. Here hvdrun does."""

from typing import Any

from horovod.runner.common._absent import absent_function

gloo_run = absent_function("horovod.runner.gloo_run.gloo_run")
gloo_run_elastic = absent_function("horovod.runner.gloo_run.gloo_run_elastic")


def _get_min_start_hosts(settings: Any) -> int:
    """Returns how many hosts a job needs to begin: one, whatever its settings are."""
    return 1
