"""horovod.jax on two ranks; a test per case, and one launch for all."""

import ast
import functools
import os
import pathlib
import re
import subprocess
import sys

import pytest
from patience import PATIENCE
from ranks import ROOT, run_ranks

pytest.importorskip("jax")

HERE = pathlib.Path(__file__).parent
CASES = [
    node.name
    for node in ast.parse((HERE / "rank_jax_cases.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")
]


@functools.lru_cache(maxsize=None)
def outcome():
    return run_ranks(2, HERE / "rank_jax_cases.py")


@pytest.mark.parametrize("case", CASES)
def test_ranks(case):
    for rank, reported in enumerate(outcome().reports):
        said = (reported or {}).get(case, "the case did not end")
        assert said == "ok", f"rank {rank}: {said}\n{outcome().output}"


def test_ranks_end_in_order():
    outcome().check()


def test_jax_sees_the_gpus_of_the_rank_alone_unless_the_script_has_chosen():
    script = """import jax
jax.config.update("jax_rocm_visible_devices", "3")
import horovod.jax
print(jax.config.read("jax_cuda_visible_devices"), jax.config.read("jax_rocm_visible_devices"))
jax.config.update("jax_cuda_visible_devices", "all")
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "1"  # as scripts do: no second one is left
horovod.jax._gpus.take_own()
print(jax.config.read("jax_cuda_visible_devices"))
"""
    environment = {**os.environ, "JAX_LOCAL_DEVICE_IDS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "1 3\nall\n", done.stderr


def test_a_rank_that_dies_in_a_program_is_named_on_the_others_and_they_go_on():
    result = run_ranks(2, HERE / "rank_jax_killed.py", by_agent=True)
    reported = result.reports[0]
    assert reported, result.output
    assert "rank 1" in reported["said"] and "[hvd 7]" in reported["said"], reported
    print(f"it was told after {reported['seconds']:.2f} s")
    assert reported["goes on"] == 2.0


@pytest.mark.parametrize("ending", ["the end", "shutdown"])
def test_a_failure_that_the_script_handles_is_not_raised_again_at_the_end(ending):
    output = run_ranks(2, HERE / "rank_jax_failed_end.py", ending).check().output
    assert output.count("handled") == 2 and "Mismatched ALLREDUCE" in output, output
    assert "Traceback" not in output and output.count("program that the script started had failed") == 2, output


@pytest.mark.parametrize("attempt", range(5))
def test_ranks_that_disagree_on_many_collectives_of_a_program_do_not_hang(attempt):
    output = run_ranks(2, HERE / "rank_jax_many_refused.py").check().output
    assert output.count("handled") == 4 and output.count("late sum 2.0") == 2 and output.count("sum 2.0") == 4, output


def test_a_jax_that_is_too_old_is_refused(tmp_path):
    (tmp_path / "jax.py").write_text('__version__, __version_info__ = "0.4.30", (0, 4, 30)')
    done = subprocess.run([sys.executable, "-c", "import horovod.jax"], env={**os.environ, "PYTHONPATH": str(tmp_path)},
                          capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
    assert "needs JAX 0.5 or later, and this is 0.4.30; pip install -U jax" in done.stderr, done.stderr


def test_beside_jax_distributed():
    for reported in run_ranks(2, HERE / "rank_jax_distributed.py").check().reports:
        assert reported["theirs"] == 4.0
        assert reported["ours"] == [3.0] * 3
        assert "addressable_shards" in reported["refused"]


def test_digits_example():
    output = run_ranks(2, ROOT / "configs/examples/digits_jax.py", "--epochs", 3).check().output
    assert "the same on all ranks" in output, output


def test_the_readme_names_what_is_there():
    rows = dict(re.findall(r"^\| `(horovod\.\w+)` \| [^|]* \| (.*) \|$", (ROOT / "runtime/docs/fronts.md").read_text(), re.M))
    for front, package in ("jax", "jax"), ("keras", "_keras3"):
        tree = ast.parse((ROOT / f"runtime/python/horovod/{package}/__init__.py").read_text())
        public = next(ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__")
        named = set(re.findall(r"`(\w+)`", rows[f"horovod.{front}"]))
        assert named and named <= set(public), named - set(public)
        basics = (ROOT / "runtime/docs/horovod.md").read_text().split("## Names\n")[1].split("\n## ")[0]
        unnamed = {n for n in public if n not in named and f"`{n}`" not in basics}
        assert not unnamed, unnamed
