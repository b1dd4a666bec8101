"""Names of Horovod's module that starts ranks without MPI. Here hvdrun does."""

from typing import Any

from horovod.runner.common._absent import absent_function
from horovod.runner.common.util.hosts import get_host_assignments as get_host_assignments
from horovod.runner.common.util.hosts import parse_hosts as parse_hosts
from horovod.runner.http.http_server import RendezvousServer as RendezvousServer

create_run_env_vars = absent_function("horovod.runner.gloo_run.create_run_env_vars")
create_slot_env_vars = absent_function("horovod.runner.gloo_run.create_slot_env_vars")
get_run_command = absent_function("horovod.runner.gloo_run.get_run_command")
launch_gloo = absent_function("horovod.runner.gloo_run.launch_gloo")
launch_gloo_elastic = absent_function("horovod.runner.gloo_run.launch_gloo_elastic")
gloo_run = absent_function("horovod.runner.gloo_run.gloo_run")
gloo_run_elastic = absent_function("horovod.runner.gloo_run.gloo_run_elastic")


def _get_min_start_hosts(settings: Any) -> int:
    """Returns how many hosts a job needs to begin: one, whatever its settings are."""
    return 1
