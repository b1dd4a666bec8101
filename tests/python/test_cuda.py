"""CUDA tensors on machines without a GPU: staged through the host, and on the fake driver's device. With a GPU the same
cases run in tests/gpu.
"""

import ast
import functools
import pathlib

import cuda_stand_in
import fork_ranks
import pytest
import torch
from ranks import run_ranks

from horovod.common import _lib

SCRIPT = pathlib.Path(__file__).parent / "rank_cuda_cases.py"
CASES = [node.name for node in ast.parse(SCRIPT.read_text()).body
         if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")]  # fmt: skip


@functools.lru_cache(maxsize=None)
def outcome(way, size):
    return run_ranks(size, SCRIPT, way, by_agent=True)


def check(way, size, case):
    result = outcome(way, size)
    for rank, report in enumerate(result.reports):
        said = (report or {}).get(case, "the case did not end")
        assert said == "ok", f"rank {rank} of {size}: {said}\n{result.output}"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [1, 2])
def test_staged(size, case):
    check("staged", size, case)


def need(*libraries):
    if torch.version.cuda is not None:
        pytest.skip("torch has CUDA here, and loads libraries of its own in the fakes' place; see scripts/gpu-check")
    for library in libraries:
        if not library.is_file():
            pytest.skip(f"{library.name} of the tests is not built here: the CUDA toolkit's headers were missing")
    if not hasattr(_lib.lib, "hvd_fetch"):
        pytest.skip("this libhvd does no operations on GPUs")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_on_the_fake_device(size, case):
    need(cuda_stand_in.LIBRARY)
    check("fake", size, case)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_on_the_fake_device_by_nccl(size, case):
    need(cuda_stand_in.LIBRARY, cuda_stand_in.NCCL)
    check("nccl", size, case)


def test_ranks_end_in_order():
    outcome("staged", 2).check()


def test_a_rank_that_cannot_use_cuda_says_why(monkeypatch, capsys):
    fork_ranks.tell_if_cuda_is_lost()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    fork_ranks.tell_if_cuda_is_lost()
    assert "CUDA was in use before this rank was forked" in capsys.readouterr().err
