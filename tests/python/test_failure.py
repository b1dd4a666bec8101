"""A rank that ends, is interrupted, or leaves: what the others see. Without hvdrun, which would stop the survivors."""

import pathlib

import pytest
from ranks import run_ranks

# Below every deadline that could end a wait in its place (60 s and more), above what a busy machine adds: not a measurement.
SOON = 30
SCRIPT = pathlib.Path(__file__).parent / "rank_failure.py"


@pytest.mark.parametrize("kind", ["killed", "exited", "shutdown"])
def test_when_a_rank_ends_the_others_get_an_error_at_once(kind):
    outcome = run_ranks(3, SCRIPT, kind, by_agent=True)
    for rank in (0, 2):
        report = outcome.reports[rank]
        assert report is not None, outcome.output
        assert report["seconds"] < SOON
        assert "1" in report["error"], f"the text names the rank: {report['error']}"
        assert report["after"] != "no error"


def test_ctrl_c_ends_a_wait_and_leaves_the_job():
    outcome = run_ranks(2, SCRIPT, "interrupt", by_agent=True).check()
    interrupted, other = outcome.reports
    assert "error" not in interrupted and interrupted["seconds"] < SOON and not interrupted["initialized"]
    assert "0" in other["error"]


def test_a_handler_of_the_scripts_own_leaves_the_job_alone():
    outcome = run_ranks(2, SCRIPT, "interrupt_handled", by_agent=True).check()
    assert outcome.reports == [{"total": 2.0, "caught": 1}, {"total": 2.0, "caught": 0}]


def test_20_jobs_in_the_same_processes():
    assert run_ranks(2, SCRIPT, "again").check().reports == ["ok", "ok"]
