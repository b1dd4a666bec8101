"""Runs the rank scripts on several ranks, each script once per number of ranks; a test per case.

One of them by hvdrun where it is built, the others by the agent of tests/support, which is faster.
"""

import ast
import functools
import pathlib

import pytest
from rank_side import is_torch
from ranks import run_ranks

HERE = pathlib.Path(__file__).parent
SIZES = [1, 2, 3, 4]
SCRIPTS = ["rank_cases.py", "rank_adasum_cases.py", "rank_group_cases.py", "rank_optimizer_cases.py", "rank_set_cases.py", "rank_backend_cases.py",
           "rank_training_cases.py", "rank_script_cases.py", "rank_start_cases.py", "rank_callback_cases.py", "rank_buffer_cases.py", "rank_format_cases.py",
           "rank_plain_cases.py", "rank_work_cases.py", "rank_again_cases.py", "rank_state_cases.py"]
if not is_torch(2, 1):
    SCRIPTS = [script for script in SCRIPTS if script not in ("rank_backend_cases.py", "rank_work_cases.py")]


def cases(script):
    tree = ast.parse((HERE / script).read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")]


@functools.lru_cache(maxsize=None)
def outcome(script, size):
    return run_ranks(size, HERE / script, by_agent=(size, script) != (2, "rank_cases.py"))


@pytest.mark.parametrize("case", [(script, case) for script in SCRIPTS for case in cases(script)], ids=lambda c: c[1])
@pytest.mark.parametrize("size", SIZES)
def test_ranks(size, case):
    script, name = case
    result = outcome(script, size)
    for rank, report in enumerate(result.reports):
        said = (report or {}).get(name, "the case did not end")
        assert said == "ok", f"rank {rank} of {size}: {said}\n{result.output}"


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("size", SIZES)
def test_ranks_end_in_order(size, script):
    outcome(script, size).check()


def test_random_process_sets_have_the_right_sums():
    """Hundreds of sets; scripts/hammer goes on for as long as one likes."""
    assert run_ranks(4, HERE / "rank_set_hammer.py", 20, 600, 300, by_agent=True).check().reports == [300] * 4


def test_data_loaders_with_workers():
    assert run_ranks(2, HERE / "rank_loaders.py").check().reports == [{"fork": 276.0, "spawn": 276.0}] * 2
