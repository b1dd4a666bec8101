"""Data loaders with workers, which are processes, in elastic jobs: the ranks that stay read on, and no worker is left behind."""

import re
import sys

import pytest

from hvdrun import ROOT, env_with, hvdrun, wait_until_gone

SCRIPT = ROOT / "tests/support/loader_steps.py"


@pytest.mark.parametrize("kind, workers", [("persistent", 2), ("anew", 0)])
def test_loaders_with_workers_survive_the_loss_of_a_rank(tmp_path, marker, kind, workers):
    """Workers are copies of their rank, so they hold what connects it to the others too."""
    done = hvdrun("-np", 3, "--min-np", 2, "--elastic-restarts", 1, sys.executable, SCRIPT, kind, tmp_path,
                  env=env_with(marker))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "generation 2: 2 ranks train together" in done.stderr, done.stderr
    assert {int(count) for count in re.findall(r"ended as rank \d with (\d+) workers", done.stdout)} == {workers}, done.stdout
    # When the ranks meet again, workers of an iteration that was broken off are gone, or wait for the next one.
    found = {int(count) for count in re.findall(r"size [23], (\d+) workers", done.stdout)}
    assert found and found <= {0, workers}, done.stdout
    assert wait_until_gone(marker) == {}
