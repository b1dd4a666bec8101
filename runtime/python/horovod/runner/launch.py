"""`python -m horovod.runner.launch ...` is hvdrun, under the name that horovodrun's Python module has.

The other names here are those that scripts and tests look for; what they tell is told of libhvd.
"""

import os
import sys
from typing import List, Optional

from horovod.common.basics import gloo_built, mpi_built  # noqa: F401
from horovod.runner._job import find_program


def is_jsrun_installed() -> bool:
    """Returns False: jobs are not started by jsrun."""
    return False


class lsf:  # noqa: N801  (a module in Horovod)
    """LSF is not supported."""

    class LSFUtils:
        @staticmethod
        def using_lsf() -> bool:
            return False


def run_commandline(argv: Optional[List[str]] = None) -> None:
    """Turns this process into hvdrun, with these arguments or its own."""
    hvdrun = find_program("hvdrun")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(hvdrun, [hvdrun, *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    run_commandline()
