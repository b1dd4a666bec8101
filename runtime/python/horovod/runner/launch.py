"""`python -m horovod.runner.launch ...` is hvdrun, under the name that horovodrun's Python module has.

The other names here are those that scripts and tests look for. What they start is hvdrun (_options.py); what they tell is
told of libhvd.
"""

import os
import sys
from typing import Any, List, Optional

from horovod.common.basics import gloo_built, mpi_built  # noqa: F401
from horovod.runner import run as run  # horovod.run.runner had it
from horovod.runner import _job, _options
from horovod.runner.common._absent import absent_function
from horovod.runner.js_run import is_jsrun_installed  # noqa: F401
from horovod.runner.util import lsf as lsf

run_controller = absent_function("horovod.runner.launch.run_controller")



def parse_args() -> _options.Arguments:
    """Reads this process's arguments as horovodrun's."""
    return _options.parse()


def _run_static(args: Any) -> Optional[List[Any]]:
    """Runs a job that starts with all its ranks and keeps them. Returns what its function returned, if it has one."""
    return _job.run_arguments(args, elastic=False)


def _run_elastic(args: Any) -> Optional[List[Any]]:
    """Runs a job whose ranks and hosts come and go. Returns what its function returned, if it has one."""
    return _job.run_arguments(args, elastic=True)


def _run(args: Any) -> Optional[List[Any]]:
    """Runs the job that the arguments describe. Returns what its function returned, if it has one."""
    return _job.run_arguments(args, _options.is_elastic(args))


def run_commandline(argv: Optional[List[str]] = None) -> None:
    """Turns this process into hvdrun, with these arguments or its own."""
    hvdrun = _job.find_program("hvdrun")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(hvdrun, [hvdrun, *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    run_commandline()
