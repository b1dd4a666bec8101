"""Names of Horovod's view of a job under LSF. hvdrun reads LSF's variables itself."""

import os

from horovod.runner.common._absent import absent_function


class LSFUtils:
    """LSFUtils tells whether this process belongs to a job of LSF. Its other questions are not answered here."""

    get_allocation_info = staticmethod(absent_function("horovod.runner.util.lsf.LSFUtils.get_allocation_info"))
    get_compute_hosts = staticmethod(absent_function("horovod.runner.util.lsf.LSFUtils.get_compute_hosts"))
    get_num_processes = staticmethod(absent_function("horovod.runner.util.lsf.LSFUtils.get_num_processes"))

    @staticmethod
    def using_lsf() -> bool:
        """Returns whether it does."""
        return "LSB_JOBID" in os.environ
