"""horovod.keras on two ranks, on each backend; a test per case, and one launch per backend for all."""

import ast
import functools
import importlib.metadata
import importlib.util
import pathlib

import pytest
from ranks import ROOT, run_ranks

# Importing Keras would import the backend that is its default, which may not be there.
if not importlib.util.find_spec("keras") or int(importlib.metadata.version("keras").split(".")[0]) < 3:
    pytest.skip("needs Keras 3", allow_module_level=True)

HERE = pathlib.Path(__file__).parent
CASES = [
    node.name
    for node in ast.parse((HERE / "rank_keras_cases.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")
]
BACKENDS = [name for name in ("jax", "torch", "tensorflow") if importlib.util.find_spec(name)]


@functools.lru_cache(maxsize=None)
def outcome(backend):
    return run_ranks(2, HERE / "rank_keras_cases.py", env={"KERAS_BACKEND": backend})


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks(backend, case):
    for rank, reported in enumerate(outcome(backend).reports):
        said = (reported or {}).get(case, "the case did not end")
        assert said == "ok", f"rank {rank}: {said}\n{outcome(backend).output}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_end_in_order(backend):
    outcome(backend).check()


def test_digits_example():
    output = run_ranks(2, ROOT / "configs/examples/digits_keras.py", "--epochs", 2, env={"KERAS_BACKEND": BACKENDS[0]}).check().output
    assert "the same on all ranks" in output, output
