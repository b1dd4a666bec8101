"""Fixtures for all end-to-end tests: labs of hosts (tests/support/lab.py says how to use them)."""

import pathlib
import sys
import uuid

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from lab import lab2, lab3, lab4, lab_possible, make_lab  # noqa: E402, F401


@pytest.fixture
def marker():
    """A variable that every process of the test's job inherits, so that what is left can be listed."""
    return f"HVD_TEST_MARKER={uuid.uuid4()}"
