"""Settings that Python code reads from variables of the environment; libhvd reads and checks its own."""

import math
import os


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
