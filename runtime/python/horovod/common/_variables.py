"""Variables of the environment: settings that Python code reads, as libhvd reads and checks its own, and some that are set for a
while."""

import contextlib
import math
import os
from typing import Dict, Iterator, Optional


def seconds_from(name: str, default: float) -> float:
    """Returns the seconds that a variable says; the default where it is unset or empty.

    Raises ValueError, which names the variable and its value, where that is no number of seconds.
    """
    text = os.environ.get(name) or ""
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{name} is {text!r}, expected a number of seconds")
    return seconds


@contextlib.contextmanager
def env(**variables: Optional[str]) -> Iterator[None]:
    """Sets environment variables, where None removes one, and restores them at the end."""
    before = {name: os.environ.get(name) for name in variables}
    try:
        _set_environment(variables)
        yield
    finally:
        _set_environment(before)


def _set_environment(variables: Dict[str, Optional[str]]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = str(value)
