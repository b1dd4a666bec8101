"""The examples as a user runs them, on 2 or 3 ranks. (digits_torch.py: test_digits.py.)"""

import re

from ranks import ROOT, run_ranks

EXAMPLES = ROOT / "configs/examples"


def said(size, name, *options, by_agent=False):
    """`by_agent`: without hvdrun, so that torch is there already."""
    return run_ranks(size, EXAMPLES / name, *options, by_agent=by_agent).check().output


def test_transformer():
    output = said(2, "transformer_torch.py", "--steps", 30)
    first, last = map(float, re.search(r"loss went from ([\d.]+) to ([\d.]+)", output).groups())
    assert last < 0.8 * first


def test_transformer_accumulated_and_compressed():
    output = said(2, "transformer_torch.py", "--steps", 12, "--accumulate", 2, "--compress", "--batch-size", 8, by_agent=True)
    first, last = map(float, re.search(r"loss went from ([\d.]+) to ([\d.]+)", output).groups())
    assert last < first


def test_distributed_data_parallel():
    for backend in ("hvd", "gloo"):
        output = said(2, "ddp_torch.py", "--backend", backend)
        assert re.search(rf"loss [\d.]+ on 2 ranks over {backend}", output), output


def test_join():
    output = said(3, "join_torch.py")
    assert "batches [5, 8, 11]; rank 2 was the last to join" in output
