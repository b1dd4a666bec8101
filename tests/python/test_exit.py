"""Processes that end while operations are in the background: none aborts, none hangs."""

import pathlib

import pytest
from ranks import run_ranks

SCRIPT = pathlib.Path(__file__).with_name("rank_exit.py")


@pytest.mark.parametrize("how", ["callback", "alone"])
def test_exit(how):
    outcome = run_ranks(2, SCRIPT, how).check()
    assert sorted(line.split(":", 1)[1] for line in outcome.output.splitlines() if "ends" in line) == [
        "rank 0 ends",
        "rank 1 ends",
    ], outcome.output
