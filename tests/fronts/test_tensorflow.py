"""horovod.tensorflow: each script of cases runs once for each number of ranks, as importing TensorFlow takes seconds."""

import ast
import functools
import pathlib

import pytest

pytest.importorskip("tensorflow")
from ranks import run_ranks  # noqa: E402

HERE = pathlib.Path(__file__).parent
# What hangs ends with the error that names what waits.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "120"}
RUNS = [
    ("rank_tf_operations.py", 2, {}),
    ("rank_tf_operations.py", 3, {}),
    ("rank_tf_training.py", 2, {}),
    ("rank_tf_training.py", 2, {"TF_USE_LEGACY_KERAS": "1"}),
]


def cases(script):
    tree = ast.parse((HERE / script).read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")]


@functools.lru_cache(maxsize=None)
def outcome(number):
    script, size, env = RUNS[number]
    return run_ranks(size, HERE / script, env={**QUIET, **env})


@pytest.mark.parametrize(
    "number, case",
    [(i, case) for i, (script, _, _) in enumerate(RUNS) for case in cases(script)],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, RUNS[value][:2])),
)
def test_case(number, case):
    result = outcome(number)
    for rank, report in enumerate(result.reports):
        said = (report or {}).get(case, f"the case did not end\n{result.output[-6000:]}")
        assert said == "ok", f"rank {rank}: {said}"


@pytest.mark.parametrize("number", range(len(RUNS)))
def test_ranks_end_in_order(number):
    outcome(number).check()
