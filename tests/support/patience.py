"""The one limit of every wait in the tests: what takes longer hangs. It measures nothing, so a slow machine fails no test.

HVD_TEST_PATIENCE: another, for who has less time himself (scripts/gpu-check).
"""

import os
import time

PATIENCE = int(os.environ.get("HVD_TEST_PATIENCE", "600"))  # seconds


def wait_until(condition, message=""):
    """The first true value of condition(); or a failure with the message, a text or what returns it in the end."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, message() if callable(message) else message
        time.sleep(0.02)
    return value


def left_of(look):
    """What look() finds in the end: nothing when all is well."""
    deadline = time.monotonic() + PATIENCE
    while (left := look()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def growing(seconds):
    """Limits for what is to end by its limit: longer and longer ones, as within a short one a busy machine may not come so far."""
    yield seconds
    while (seconds := 4 * seconds) < PATIENCE:
        yield seconds
