"""How long a failed job of horovod.spark.run waits for Spark's own error, which becomes the cause of the exception, and whether
its ranks may be started again."""

import io
import threading

import pytest

from horovod.runner._launch import Outcome
from horovod.runner._agent import Order
from horovod.spark import _job, _seats, _session, run_elastic
from horovod.spark._job import ElasticJob, Job
from patience import PATIENCE

CANCELLED = "Job 7 cancelled part of cancelled job tag horovod.spark.run.1a2b3c4d"
SILENT = "hvdrun: rank 1 on node2 was lost: no sign of life from its agent for 1.2 s"


class Launch:
    """A launch whose job ends with these words while its tasks still run."""

    num_proc = 2

    def __init__(self, last_words):
        self.last_words = last_words

    def take_settings(self):
        pass

    def run(self, environment, stdout, stderr, on_log, start_tasks):
        start_tasks(None, lambda text: None)
        return Outcome([None, None], 1, self.last_words)


class Session:
    """A cluster whose stage ends when it is cancelled, or by itself after the failure where `ends` says so."""

    def __init__(self, ends, says="Spark's own error"):
        self.is_over, self.ends, self.says, self.was_cancelled = threading.Event(), ends, says, False

    def run_stage(self, tasks, task, is_gang=True):
        if not self.ends:
            self.is_over.wait()
        raise RuntimeError(self.says)

    def prepare(self):
        pass

    def conf(self, name, default):
        return {"spark.speculation": "true", "spark.speculation.task.duration.threshold": "10s"}.get(name, default)

    def cancel(self):
        self.was_cancelled = True
        self.is_over.set()


def test_a_silent_node_is_told_without_waiting_for_spark(monkeypatch):
    monkeypatch.setattr(_job, "_SPARKS_WORD_S", threading.TIMEOUT_MAX)
    session = Session(ends=False)
    with pytest.raises(RuntimeError, match="no sign of life"):
        Job(session, Launch(SILENT), "driver").run(None, None)
    assert session.was_cancelled


def test_sparks_own_error_is_the_cause_of_any_other_failure(monkeypatch):
    monkeypatch.setattr(_job, "_SPARKS_WORD_S", threading.TIMEOUT_MAX)
    session = Session(ends=True)
    with pytest.raises(RuntimeError, match="signal 9") as raised:
        Job(session, Launch("hvdrun: rank 1 on node1 was killed by signal 9"), "driver").run(None, None)
    assert "Spark's own error" in str(raised.value.__cause__) and not session.was_cancelled


def test_ranks_may_be_started_again_after_our_own_cancelling(monkeypatch):
    """Spark's words for it are those of a user's."""
    monkeypatch.setattr(_job, "_CANCEL_S", PATIENCE)
    job = Job(Session(ends=False, says=CANCELLED), Launch(SILENT), "driver")
    with pytest.raises(RuntimeError, match="no sign of life") as raised:
        job.run(None, None)
    assert job.may_run_again and raised.value.__cause__ is None


def test_ranks_that_somebody_has_cancelled_are_not_started_again(monkeypatch):
    monkeypatch.setattr(_job, "_SPARKS_WORD_S", PATIENCE)
    job = Job(Session(ends=True, says=CANCELLED), Launch("hvdrun: rank 1 on node1 was lost"), "driver")
    with pytest.raises(RuntimeError, match="was lost") as raised:
        job.run(None, None)
    assert not job.may_run_again and "cancelled" in str(raised.value.__cause__)


LOST = "Job aborted due to stage failure: ExecutorLostFailure (executor 1 exited caused by one of the running tasks)"
RAISED = "Job aborted due to stage failure: org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"


@pytest.mark.parametrize(
    "says, may",
    [
        (LOST, True),
        (RAISED + "RuntimeError: hvdrun-agent of partition 1 on node2 ended with code 5: it has lost hvdrun\n", True),
        (RAISED + "RuntimeError: hvdrun-agent of partition 1 on node2 ended with code 5: cannot call hvdrun back\n", False),
        (RAISED + "RuntimeError: hvdrun could not start in the task of partition 0: no memory\n", False),
        (RAISED + "ModuleNotFoundError: No module named 'horovod'\n", False),
        (CANCELLED, False),
    ],
)
def test_ranks_whose_hvdrun_ran_in_a_task_are_started_again_after_a_loss_alone(says, may):
    """What hvdrun found is lost with its task. What a task has raised of itself would come again."""
    job = Job(Session(ends=True, says=says), Launch(""), "task0")
    with pytest.raises(RuntimeError, match="Spark ended the tasks"):
        job.run(None, None)
    assert job.may_run_again == may


@pytest.mark.parametrize(("says", "may"), [(LOST, True), (CANCELLED, False)])
def test_an_elastic_job_is_started_again_when_an_executor_was_lost_before_its_ranks_began(tmp_path, says, may):
    told, session = [], Session(ends=True, says=says)
    job = ElasticJob(session, Launch(""), 1, 1)
    job._stage = _seats.Seats(session, Order("key", 1, []), 1, tmp_path / "join", told.append, io.StringIO())
    job._stage.start()
    job._stage.join(PATIENCE)
    assert told == [f"Spark ended the tasks: {says}"]
    assert job.may_run_again == may


def test_copies_of_tasks_that_run_for_long_are_refused(monkeypatch):
    monkeypatch.setattr(_session, "active", lambda gpus=0: Session(ends=True))
    with pytest.raises(ValueError, match="leave spark.speculation.task.duration.threshold out"):
        run_elastic(print, num_proc=2)
