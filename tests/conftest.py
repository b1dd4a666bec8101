"""For all Python tests: none begins when the time that scripts/test has is over, none waits for ever, and ranks wait long
for each other."""

import contextlib
import os
import signal
import time

import pytest
from patience import PATIENCE

# Ranks that import torch on a busy machine come minutes apart.
os.environ.setdefault("HOROVOD_START_TIMEOUT", str(PATIENCE))

# In the background of a script (`./scripts/test &`, nohup) these are ignored, and every program of a test would inherit
# that: no Ctrl-C would reach it.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


def pytest_collection_modifyitems(config, items):
    """scripts/test runs a folder in parts: HVD_TEST_PART=0/2 is the first of two. A file's tests stay together."""
    part, count = map(int, os.environ.get("HVD_TEST_PART", "0/1").split("/"))
    mine = set(sorted({item.path for item in items})[part::count])
    config.hook.pytest_deselected(items=[item for item in items if item.path not in mine])
    items[:] = [item for item in items if item.path in mine]


def _give_up(*_):
    raise TimeoutError(f"the test hangs: it has waited longer than {2 * PATIENCE} s")


@contextlib.contextmanager
def _limited():
    """Waits without a limit of their own (reading a line from a program) end too, and so do those that come when one has ended."""
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, 2 * PATIENCE, 2 * PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    until = float(os.environ.get("HVD_TEST_UNTIL", "inf"))  # seconds of time.time()
    if time.time() > until:
        pytest.skip("out of time on this machine")  # scripts/test takes it for a failure
    with _limited():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with _limited():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    with _limited():
        return (yield)
