"""Elastic jobs of each front: a rank is killed while the others wait for it in a compiled step. They are told who it was, go
on without it, and take in its successor, which receives all of the state."""

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import sys

import pytest
from hvdrun import HVDRUN, ROOT, hvdrun
from ranks import QUICK_XLA

SCRIPT = pathlib.Path(__file__).parent / "rank_elastic.py"
pytestmark = pytest.mark.skipif(not os.access(HVDRUN, os.X_OK), reason="hvdrun is not built")


def has(*packages):
    return all(importlib.util.find_spec(package) for package in packages)


def version(*packages):
    """Of the first of them that is installed."""
    found = next(package for package in packages if has_distribution(package))
    return tuple(int(part) for part in importlib.metadata.version(found).split(".")[:2])


def has_distribution(package):
    return any(True for _ in importlib.metadata.distributions(name=package))


HAS_KERAS_3 = has("keras") and version("keras") >= (3, 0)
CAN_COMPILE = has("tensorflow") and version("tensorflow-cpu", "tensorflow") >= (2, 19)
WAYS = [
    ("jax", {}, has("jax", "optax")),
    ("tensorflow", {}, has("tensorflow")),
    ("tensorflow jit_compile", {}, CAN_COMPILE),
    ("tensorflow keras loop", {}, has("tensorflow")),
    ("tensorflow keras loop", {"TF_USE_LEGACY_KERAS": "1"}, has("tensorflow", "tf_keras")),
    ("keras fit", {"KERAS_BACKEND": "jax"}, HAS_KERAS_3 and has("jax")),
    ("keras fit", {"KERAS_BACKEND": "torch"}, HAS_KERAS_3 and has("torch")),
    ("keras fit", {"KERAS_BACKEND": "tensorflow"}, HAS_KERAS_3 and has("tensorflow")),
    ("keras fit", {}, has("tensorflow", "keras") and not HAS_KERAS_3),  # Keras 2, which TensorFlow 2.15 comes with
    ("keras fit", {"TF_USE_LEGACY_KERAS": "1"}, has("tensorflow", "tf_keras")),
]


@pytest.mark.parametrize("way, environment, is_here", WAYS, ids=["-".join([way, *env.values()]) for way, env, _ in WAYS])
def test_a_killed_rank_is_named_and_taken_in_again(tmp_path, way, environment, is_here):
    if not is_here:
        pytest.skip("not installed")
    environment = {**os.environ, **environment, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3",
                   "HVD_TEST_REPORTS": str(tmp_path), "XLA_FLAGS": QUICK_XLA,
                   "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "tests/support"), os.environ.get("PYTHONPATH")]))}  # fmt: skip
    done = hvdrun("-np", 3, "--min-np", 2, "--elastic-restarts", 5, sys.executable, SCRIPT, way, tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    reports = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    for rank, report in enumerate(reports):
        assert report["same"], report
        assert report["step"] == reports[0]["step"]
        assert all(steps == report["step"] for steps in report["steps of the optimizer"]), report
        if rank != 1:
            # Under load a rank may join late, of which the others are told first.
            kind, text, seconds = next(one for one in report["told"] if one[0] != "HostsUpdatedInterrupt")
            assert "rank 1" in text, report
            print(f"{way} {environment.get('KERAS_BACKEND', '')}: rank {rank} was told {seconds:.2f} s after it began to wait: {kind}")
    assert reports[1]["begun"][0] > 0, "the new one takes over the others' state"
