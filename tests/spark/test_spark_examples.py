"""The examples with HorovodRunner run as their first lines say, and learn."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from patience import PATIENCE

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "configs/examples"


def rights(example, *words):
    """What the example says of its two modes: {processes: per cent}; and all that it printed."""
    done = subprocess.run([sys.executable, EXAMPLES / example, "--master", "local[2]", *map(str, words)],
                          capture_output=True, text=True, timeout=PATIENCE, check=False,
                          env={**os.environ, "KERAS_BACKEND": "torch", "SPARK_LOCAL_IP": "127.0.0.1"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = re.findall(r"mode: (\d) process(?:es)?, ([\d.]+) % are right", done.stdout)
    return {int(size): float(right) for size, right in found}, done.stdout


def test_pytorch_in_local_then_distributed_mode(spark_possible, tmp_path):
    found, printed = rights("horovodrunner_torch.py", "--folder", tmp_path)
    assert set(found) == {1, 2} and min(found.values()) > 90, printed
    assert "epoch 5: loss" in printed
    assert {path.name for path in tmp_path.glob("*.pt")} == {"1-ranks.pt", "2-ranks.pt"}
    assert (tmp_path / "timeline.json").stat().st_size > 0


def test_keras_in_local_then_distributed_mode(spark_possible):
    pytest.importorskip("keras", reason="Keras is not installed here")
    found, printed = rights("horovodrunner_keras.py")
    assert set(found) == {1, 2} and min(found.values()) > 90, printed
