"""The one limit of every wait in the tests: what takes longer hangs. It measures nothing, so a slow machine fails no test.

HVD_TEST_PATIENCE: another, for who has less time himself (scripts/gpu-check).
"""

import os

PATIENCE = int(os.environ.get("HVD_TEST_PATIENCE", "600"))  # seconds


def growing(seconds):
    """Limits for what is to end by its limit: longer and longer ones, as within a short one a busy machine may not come so far."""
    yield seconds
    while (seconds := 4 * seconds) < PATIENCE:
        yield seconds
