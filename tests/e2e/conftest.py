"""Fixtures for all end-to-end tests: labs of hosts (tests/support/lab.py says how to use them)."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from lab import lab2, lab3, lab4, lab_possible, make_lab  # noqa: E402, F401
