"""A rank that ends, is interrupted, or leaves: what the others see. Without hvdrun, which would stop the survivors."""

import pathlib
import re

import pytest
from ranks import run_ranks

from horovod.common import _failure, _lib
from horovod.common.exceptions import HorovodInternalError

SCRIPT = pathlib.Path(__file__).parent / "rank_failure.py"


@pytest.mark.parametrize("kind", ["killed", "exited", "shutdown"])
def test_when_a_rank_ends_the_others_get_an_error(kind):
    outcome = run_ranks(3, SCRIPT, kind, by_agent=True)
    for rank in (0, 2):
        report = outcome.reports[rank]
        assert report is not None, outcome.output
        assert re.search(r"rank 1\b.*", report["error"]), f"the text names the rank: {report['error']}"
        assert report["after"] != "no error"


def test_when_a_rank_ends_distributed_data_parallel_says_which_and_does_not_crash():
    outcome = run_ranks(3, SCRIPT, "killed_in_backward", by_agent=True)
    for rank in (0, 2):
        assert outcome.codes[rank] == 0, outcome.output
        for text in outcome.reports[rank]:
            assert re.search(r"\brank 1\b", text), f"the text names the rank: {text}"


def test_what_a_failed_collective_has_caused_is_known_by_its_chain_and_by_the_mark_in_its_text():
    lost = HorovodInternalError("rank 1 is gone", _lib.LOST_PEER)
    wrapped = ValueError("the batch is bad")
    wrapped.__cause__ = lost
    by_text = RuntimeError(f"compiled code failed: {_failure.marked(lost)}")
    for error in (lost, wrapped, by_text):
        assert str(_failure.job_error(error)) == "rank 1 is gone" and _failure.follows(error)
    refused = HorovodInternalError("the job was left", _lib.CANCELLED)
    assert _failure.job_error(_failure.marked(refused)).status == _lib.CANCELLED and not _failure.follows(refused)
    handling = ValueError("raised while that error was handled")
    handling.__context__ = lost
    assert _failure.job_error(handling) is lost and _failure.job_error(handling, lost) is None
    other = ValueError("[hvd 7] is a text of the script's own")
    assert _failure.job_error(other) is None and _failure.marked(other) is other


@pytest.mark.parametrize("kind", ["interrupt", "interrupt_future"])
def test_ctrl_c_ends_a_wait_and_leaves_the_job(kind):
    outcome = run_ranks(2, SCRIPT, kind, by_agent=True).check()
    interrupted, other = outcome.reports
    assert interrupted == {"initialized": False}
    assert "0" in other["error"]


def test_after_ctrl_c_in_a_step_the_optimizer_can_be_used_again():
    outcome = run_ranks(2, SCRIPT, "interrupt_step", by_agent=True).check()
    assert outcome.reports == [{"initialized": False, "weight": [-0.5, -0.5]}] * 2


def test_ctrl_c_in_a_cell_of_a_notebook():
    outcome = run_ranks(2, SCRIPT, "interrupt_cell", by_agent=True).check()
    interrupted, other = outcome.reports
    after = {"initialized": False, "total": 2.0}
    assert interrupted == {"interrupted": True, **after}
    assert "rank 0" in other.pop("error") and other == after


def test_a_handler_of_the_scripts_own_leaves_the_job_alone():
    outcome = run_ranks(2, SCRIPT, "interrupt_handled", by_agent=True).check()
    assert outcome.reports == [{"total": 2.0, "caught": 1}, {"total": 2.0, "caught": 0}]


def test_ranks_with_another_number_of_backward_passes_are_told_and_do_not_mix_their_gradients():
    outcome = run_ranks(2, SCRIPT, "passes", env={"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "15"}, by_agent=True)
    for reported in outcome.reports:
        for name in ("allreduce.weight'", "allreduce.weight.again'"):
            assert name in reported["error"], outcome.output


def test_20_jobs_in_the_same_processes():
    assert run_ranks(2, SCRIPT, "again").check().reports == ["ok", "ok"]
