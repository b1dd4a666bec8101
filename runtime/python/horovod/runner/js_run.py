"""Names of Horovod's module that starts ranks by jsrun, which only `hvdrun --jsrun` does here."""

from horovod.runner.common._absent import absent_function

js_run = absent_function("horovod.runner.js_run.js_run")
generate_jsrun_rankfile = absent_function("horovod.runner.js_run.generate_jsrun_rankfile")


def is_jsrun_installed() -> bool:
    """Returns False: what starts ranks from Python does not start them by jsrun."""
    return False
