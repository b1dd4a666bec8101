"""For all Python tests: none begins when the time that scripts/test has is over, and ranks wait long for each other."""

import os
import time

import pytest
from patience import PATIENCE

# Ranks that import torch on a busy machine come minutes apart.
os.environ.setdefault("HOROVOD_START_TIMEOUT", str(PATIENCE))


def pytest_runtest_setup(item):
    until = float(os.environ.get("HVD_TEST_UNTIL", "inf"))  # seconds of time.time()
    if time.time() > until:
        pytest.skip("out of time on this machine")
