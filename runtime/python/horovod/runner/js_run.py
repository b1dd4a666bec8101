"""Names of Horovod's module that starts ranks by jsrun, which hvdrun does not use."""

from horovod.runner.common._absent import absent_function

js_run = absent_function("horovod.runner.js_run.js_run")
generate_jsrun_rankfile = absent_function("horovod.runner.js_run.generate_jsrun_rankfile")


def is_jsrun_installed() -> bool:
    """Returns False: jobs are not started by jsrun."""
    return False
