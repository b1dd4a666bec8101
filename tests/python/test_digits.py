"""The example as a user runs it: 4 ranks train as one process does. That it learns is the README test's."""

import functools
import json
import tempfile

import pytest
from ranks import ROOT, run_ranks

pytest.importorskip("sklearn")
EXAMPLE = ROOT / "configs" / "examples" / "digits_torch.py"


@functools.lru_cache(maxsize=None)
def run(size, *options):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        outcome = run_ranks(size, EXAMPLE, "--check", "--losses", file.name, *options, by_agent=size != 2,
                            imports=["sklearn.datasets"]).check()
        return json.load(file), outcome.output


def test_four_ranks_have_the_losses_of_one_process():
    # A rate at which training is calm: where it swings, the last digit of a sum grows tenfold from step to step.
    alone, _ = run(1, "--epochs", "2", "--lr", "0.03")
    together, output = run(4, "--epochs", "2", "--lr", "0.03")
    assert len(alone) == len(together) == 30
    worst = max(abs(a - b) / a for a, b in zip(alone, together))
    assert worst <= 1e-5, f"relative difference {worst}"
    assert output.count("on all ranks") == 2
