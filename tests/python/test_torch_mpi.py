"""Ranks that mpirun has started without hvdrun, and data that goes over MPI: by the real Open MPI of this machine."""

import functools
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from hvdrun import HVDRUN
from patience import PATIENCE
from ranks import run_ranks

HERE = pathlib.Path(__file__).parent
SCRIPT = HERE / "rank_mpi.py"
OPERATIONS = ["gloo", "mpi"]
SUITES = ["rank_cases.py", "rank_group_cases.py", "rank_optimizer_cases.py", "rank_set_cases.py", "rank_training_cases.py"]

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")
needs_mpi4py = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="no mpi4py in this Python")


def mpirun(size, script, *arguments, operations="gloo", more=(), env=None):
    launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(size), *more]
    return run_ranks(size, script, *arguments, launch=launch, env={"HOROVOD_CPU_OPERATIONS": operations, **(env or {})})


@pytest.mark.parametrize("operations", OPERATIONS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_script_runs_under_mpirun_alone(size, operations):
    reports = mpirun(size, SCRIPT, "plain", operations=operations).check().reports
    by_mpi = size > 1
    assert reports == [
        {"rank": rank, "size": size, "local": [rank, size], "cross": [0, 1], "mpi": by_mpi, "gloo": not by_mpi,
         "threads": by_mpi, "total": size * (size + 1) / 2}
        for rank in range(size)
    ]  # fmt: skip


@functools.lru_cache(maxsize=None)
def outcome_of_suites(size):
    return mpirun(size, HERE / "rank_suites.py", *SUITES, operations="mpi")


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("suite", SUITES)
def test_all_operations_over_mpi(suite, size):
    outcome = outcome_of_suites(size)
    for rank, report in enumerate(outcome.reports):
        said = (report or {}).get(suite, {})
        bad = {name: said for name, said in said.items() if said != "ok"}
        assert said and not bad, f"rank {rank} of {size}: {bad}\n{outcome.output}"
    outcome.check()


def test_operations_of_a_number_of_ranks_that_is_no_power_of_two():
    outcome = mpirun(3, HERE / "rank_cases.py", operations="mpi").check()
    assert all(said == "ok" for report in outcome.reports for said in report.values()), outcome.reports


@pytest.mark.parametrize("operations", OPERATIONS)
def test_thirty_jobs_in_the_same_processes(operations):
    assert mpirun(2, SCRIPT, "again", operations=operations).check().reports == ["ok", "ok"]


@needs_mpi4py
def test_a_program_that_is_alone_may_have_started_mpi():
    """Open MPI then sets what its launcher sets for ranks, as Lightning meets it, which asks mpi4py where it is installed."""
    script = "from mpi4py import MPI; import horovod.torch as hvd; hvd.init(); hvd.shutdown(); hvd.init(); print(hvd.size(), MPI.COMM_WORLD.size)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "1 1\n"), done.stderr


@needs_mpi4py
@pytest.mark.parametrize("operations", OPERATIONS)
def test_an_mpi_that_the_program_has_started_is_used(operations):
    reports = mpirun(2, SCRIPT, "mpi4py_first", operations=operations).check().reports
    assert [report["total"] for report in reports] == [3, 3] and all(report["mpi"] for report in reports)


@needs_mpi4py
@pytest.mark.parametrize("ranks", [[], ["[0, 1]"]])
@pytest.mark.parametrize("inside", [False, True])
def test_an_mpi_that_the_program_has_started_is_asked_where_no_variable_tells_of_ranks(inside, ranks):
    launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
    launch = [HVDRUN, "-np", "1", *launch] if inside else launch
    reports = run_ranks(2, SCRIPT, "unknown_launcher", *ranks, launch=launch).check().reports
    assert [(report["rank"], report["size"], report["mpi"], report["total"]) for report in reports] == \
        [(0, 2, True, 3), (1, 2, True, 3)]  # fmt: skip


@needs_mpi4py
@pytest.mark.parametrize("operations", OPERATIONS)
def test_the_program_uses_mpi_beside_us(operations):
    assert mpirun(2, SCRIPT, "beside", operations=operations).check().reports == [19, 19]


@needs_mpi4py
@pytest.mark.parametrize("operations", OPERATIONS)
def test_a_job_of_part_of_the_ranks(operations):
    reports = mpirun(4, SCRIPT, "part", operations=operations).check().reports
    assert reports == [[[me // 2, 2, 3], [3 - me, 4, 3], [me, 4, 10]] for me in range(4)]


def test_ranks_that_cannot_be_a_job_are_refused_and_all_can_join_after_that():
    reports = mpirun(2, SCRIPT, "wrong").check().reports
    for texts in reports:
        assert len(texts) == 3
        assert "different numbers from 0 to 1" in texts[0] and "different numbers" in texts[1]
        assert "takes a list of ranks or an mpi4py communicator, not str" in texts[2]


def test_ranks_that_mpirun_deals_out_in_turns_or_that_share_no_memory_are_linked_by_tcp():
    # Each rank in a mount namespace of its own, as containers are: they cannot hand each other files.
    if shutil.which("unshare") is None:
        pytest.skip("no unshare on this machine")
    reports = mpirun(3, SCRIPT, "plain", more=["unshare", "--mount"]).check().reports
    assert [report["local"] for report in reports] == [[rank, 3] for rank in range(3)]
    assert [report["total"] for report in reports] == [6] * 3


def test_an_mpi_that_cannot_be_loaded_is_told_and_no_rank_runs_alone():
    outcome = mpirun(2, SCRIPT, "plain", env={"HVD_MPI_LIBRARY": "/nowhere/libmpi.so.40"})
    assert outcome.codes != [0] and outcome.reports == [None, None]
    assert re.search(r"joining by MPI: no MPI library can be loaded: /nowhere/libmpi.so.40", outcome.output)


@pytest.mark.parametrize("told, words", [
    ({"PMI_SIZE": "2", "PMI_RANK": "0"}, r"PMI_SIZE is 2, but Open MPI v\S+, .* \(/.*libmpi\.so.*\) knows of 1 rank: it is not "
     "the MPI of the mpirun or srun that has started this process; name that one's libmpi in HVD_MPI_LIBRARY"),
    ({"PMIX_RANK": "0", "SLURM_STEP_NUM_TASKS": "4"}, "SLURM_STEP_NUM_TASKS is 4, but Open MPI .* knows of 1 rank"),
])  # fmt: skip
def test_a_rank_that_its_mpi_takes_for_the_only_one_does_not_run_alone(told, words):
    """Started as one of several, by a launcher that this MPI knows nothing of: as MPICH's with Open MPI's library."""
    outcome = run_ranks(1, SCRIPT, "plain", launch=["env"], env={"HVD_MPI_LIBRARY": "libmpi.so.40", **told})
    assert outcome.codes != [0] and outcome.reports == [None]
    assert re.search(words, outcome.output), outcome.output


def test_mpi_is_ended_in_order_when_a_rank_fails():
    outcome = mpirun(2, SCRIPT, "fails", operations="mpi")
    assert outcome.codes == [3] or outcome.codes == [1], outcome.output
    assert "has been shut down by rank 1" in outcome.output
    assert "without calling" not in outcome.output  # "finalize", says Open MPI then


@pytest.mark.parametrize("operations", OPERATIONS)
def test_a_rank_that_dies_in_an_operation_is_named_by_the_others(operations):
    launch = [HVDRUN, "--launcher", "mpi", "-np", "3", "--grace", str(PATIENCE)]
    outcome = run_ranks(3, SCRIPT, "killed", launch=launch, env={"HOROVOD_CPU_OPERATIONS": operations})
    assert outcome.codes == [137], outcome.output
    for rank in (0, 2):
        assert outcome.reports[rank] is not None, outcome.output
        assert "rank 1" in outcome.reports[rank]["error"]
        assert outcome.reports[rank]["mpi"] == (operations == "mpi")


def test_without_mpirun_a_setting_that_asks_for_mpi_is_told_to_have_no_effect():
    launch = [HVDRUN, "-np", "2"]
    outcome = run_ranks(2, SCRIPT, "plain", launch=launch, env={"HOROVOD_CPU_OPERATIONS": "MPI"})
    assert outcome.codes == [0], outcome.output
    assert [report["mpi"] for report in outcome.reports] == [False, False]
    assert outcome.output.count("HOROVOD_CPU_OPERATIONS=mpi has no effect, and data goes over libhvd's own links") == 1
