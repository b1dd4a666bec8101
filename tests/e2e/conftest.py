"""Fixtures for all end-to-end tests: labs of hosts (tests/support/lab.py says how to use them), and the job service."""

import pathlib
import sys
import uuid

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from lab import Lab, lab2, lab3, lab4, lab_possible, make_lab  # noqa: E402, F401
from service import Service  # noqa: E402


@pytest.fixture
def marker():
    """A variable that every process of the test's job inherits, so that what is left can be listed."""
    return f"HVD_TEST_MARKER={uuid.uuid4()}"


@pytest.fixture
def service(tmp_path, marker):
    service = Service(tmp_path, marker)
    yield service
    assert service.end() == {}


FAILED_BEFORE = pytest.StashKey[int]()


def pytest_runtest_setup(item):
    item.stash[FAILED_BEFORE] = item.session.testsfailed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """After a failure a lab that other tests share has no cut node and no job left, for which each of them would wait in vain.
    It is before the fixtures' own ends, which may ask for hosts."""
    try:
        if item.session.testsfailed > item.stash.get(FAILED_BEFORE, item.session.testsfailed):
            for lab in [value for value in item.funcargs.values() if isinstance(value, Lab)]:
                lab.clear()
    finally:
        done = yield
    return done
