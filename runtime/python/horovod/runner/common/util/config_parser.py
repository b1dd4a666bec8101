"""The runtime's variables that horovodrun's arguments stand for."""

from typing import Any, Dict

from horovod.runner import _options

globals().update({option.variable: option.variable for option in _options.OPTIONS if option.variable})

LOG_LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"]


def set_env_from_args(env: Dict[str, str], args: Any) -> Dict[str, str]:
    """Adds the variables for those of the arguments that were given, and returns `env`."""
    return _options.set_variables(env, args)
