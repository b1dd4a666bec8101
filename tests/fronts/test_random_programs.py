"""Random programs on two ranks, right and without a hang. HVD_TEST_PROGRAMS: how many for each way to execute; 1000 take an
hour, so that scripts/test runs fewer."""

import importlib.util
import os
import pathlib

import pytest
from ranks import run_ranks

HERE = pathlib.Path(__file__).parent
COUNT = int(os.environ.get("HVD_TEST_PROGRAMS", "12"))
# Ranks that wait for each other for ever end with the error that names what waits.
TENSORFLOW = {"TF_CPP_MIN_LOG_LEVEL": "3", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "120"}


def check(script, expected, *arguments, framework=None, **environment):
    by = {"by_agent": True, "framework": framework} if framework else {}
    for reported in run_ranks(2, HERE / script, *arguments, env=environment, **by).check().reports:
        assert reported == expected


@pytest.mark.skipif(not importlib.util.find_spec("tensorflow"), reason="needs TensorFlow")
@pytest.mark.parametrize("threads", ["many threads", "one thread"])
def test_tensorflow(threads):
    alone = {"HVD_TEST_ONE_THREAD": "1"} if threads == "one thread" else {}
    compiled = _can_compile() * COUNT // 2
    expected = {"function": COUNT, **({"jit_compile": compiled} if compiled else {})}
    check("rank_tf_random.py", expected, COUNT, compiled, framework="tensorflow", **TENSORFLOW, **alone)


def _can_compile():
    """From 2.19 on."""
    from importlib.metadata import PackageNotFoundError, version

    for package in "tensorflow_cpu", "tensorflow":
        try:
            return tuple(map(int, version(package).split(".")[:2])) >= (2, 19)
        except PackageNotFoundError:
            continue
    return True


@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="needs JAX")
def test_jax():
    check("rank_jax_random.py", {"jit": COUNT}, COUNT)
