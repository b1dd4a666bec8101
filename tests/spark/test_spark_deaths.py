"""One process of a job under Spark is killed: the exception says which rank it met first, and nothing of the job is left.

How long that takes is printed (pytest -rP), and measured by scripts/bench/spark deaths; it is no limit here.
"""

import io
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

import horovod.spark
from horovod.spark import _job, _session
from patience import PATIENCE, wait_until
from spark_deaths import VICTIMS, die, is_alive, job_processes, kill, record, records, wait_for_nothing, wait_for_slots

# What the exception must say. hvdrun itself cannot tell of its own end.
TOLD = {
    # Or Spark has said it before the agents.
    "executor": "with rank 1: the task that started it is over|Spark ended the tasks",
    "worker": "with rank 1: the task that started it is over|Spark ended the tasks",
    "guardian": "rank 1",
    "agent": "rank 1",
    "rank": "rank 1 .*signal 9|rank 1 .*SIGKILL",
    "hvdrun": "hvdrun ended with exit code -9",
}


def nothing_is_left(death):
    print(f"the exception came after {death.to_error_s:.2f} s, nothing was left after {death.to_nothing_s:.2f} s")
    assert death.left == []


@pytest.mark.parametrize("victim", VICTIMS)
def test_what_is_killed_is_named_and_nothing_is_left(spark, tmp_path, victim):
    death = die(tmp_path, kill(victim))
    nothing_is_left(death)
    assert isinstance(death.error, RuntimeError)
    with pytest.raises(RuntimeError, match=TOLD[victim]):
        raise death.error
    wait_for_slots(2)
    # The session goes on. Spark may not know yet that an executor is dead.
    assert horovod.spark.run(lambda: 7, num_proc=2, restarts=1) == [7, 7]


def test_sparks_own_exception_is_the_cause_when_it_comes_in_time(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(_job, "_SPARKS_WORD_S", PATIENCE)
    assert die(tmp_path, kill("worker")).error.__cause__ is not None


def test_ranks_of_a_lost_executor_are_started_again_before_spark_has_noticed(spark, tmp_path, monkeypatch):
    """Then it is our own cancelling that ends the stage."""
    monkeypatch.setattr(_job, "_SPARKS_WORD_S", 0.0)

    def train(folder):
        if (pathlib.Path(folder) / "again").exists():
            return os.environ["HOROVOD_RANK"]
        record(folder)

    def strike():
        executor = records(tmp_path, 2)[1]["executor"]
        (tmp_path / "again").touch()
        os.kill(executor, signal.SIGKILL)

    watcher = threading.Thread(target=strike, daemon=True)
    watcher.start()
    # Spark may give the next ranks the dead executor, too.
    assert horovod.spark.run(train, args=(str(tmp_path),), num_proc=2, restarts=5, stderr=io.StringIO()) == ["0", "1"]
    watcher.join(PATIENCE)
    wait_for_slots(2)


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_of_a_lost_executor_are_started_again_also_where_hvdrun_runs_in_a_task(spark, tmp_path, rank):
    """What hvdrun found is lost with its task, and so it is when Spark ends the stage for another task."""

    def train(folder):
        if (pathlib.Path(folder) / "again").exists():
            return os.environ["HOROVOD_RANK"]
        record(folder)

    def strike():
        executor = records(tmp_path, 2)[rank]["executor"]
        (tmp_path / "again").touch()
        os.kill(executor, signal.SIGKILL)

    watcher = threading.Thread(target=strike, daemon=True)
    watcher.start()
    err = io.StringIO()
    found = horovod.spark.run(train, args=(str(tmp_path),), num_proc=2, restarts=5, launcher="task0", stderr=err)
    assert found == ["0", "1"] and "the ranks are started again, 1 of 5" in err.getvalue()
    watcher.join(PATIENCE)
    wait_for_slots(2)


class WithoutTags:
    """A SparkContext as before Spark 3.5."""

    def __init__(self, context):
        self._context = context

    def __getattr__(self, name):
        if name in ("addJobTag", "cancelJobsWithTag"):
            raise AttributeError(name)
        return getattr(self._context, name)


def test_without_tags_the_callers_other_jobs_go_on(spark, tmp_path):
    context = spark.sparkContext

    def wait(_):
        while not (tmp_path / "end").exists():
            time.sleep(0.01)
        return 7

    def in_group(work):
        context.setJobGroup("of-the-caller", "a cell")
        try:
            found.append(work())
        except Exception as error:
            found.append(str(error))

    found = []
    context.setJobGroup("of-the-caller", "a cell")
    try:
        session = _session.ClassicSession(WithoutTags(context), 0)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    stage = threading.Thread(target=in_group, args=(lambda: session.run_stage(1, wait, is_gang=False),))
    other = threading.Thread(target=in_group, args=(lambda: context.parallelize([0], 1).map(wait).collect(),))
    stage.start()
    other.start()
    wait_until(lambda: len(context.statusTracker().getActiveJobsIds()) == 2)
    session.cancel()
    stage.join(PATIENCE)
    (tmp_path / "end").touch()
    other.join(PATIENCE)
    assert "cancelled" in found[0] and found[1] == [7]


def test_cancelling_the_callers_jobs_ends_the_ranks(spark, tmp_path):
    """A notebook's stop button cancels the job group of its cell."""
    context = spark.sparkContext
    context.setJobGroup("of-the-caller", "a cell")
    try:
        death = die(tmp_path, lambda _: context.cancelJobGroup("of-the-caller"))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    nothing_is_left(death)
    assert isinstance(death.error, RuntimeError) and "cancelled" in str(death.error)


def test_ctrl_c_ends_the_ranks(spark, tmp_path):
    main = threading.main_thread().ident
    death = die(tmp_path, lambda _: signal.pthread_kill(main, signal.SIGINT))
    nothing_is_left(death)
    assert isinstance(death.error, KeyboardInterrupt)


DRIVER = """
import sys
import horovod.spark
from pyspark.sql import SparkSession
from spark_deaths import record

SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
print("started", flush=True)
horovod.spark.run(record, args=(sys.argv[1],), num_proc=2)
"""


def test_a_killed_driver_leaves_nothing(spark_possible, tmp_path):
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], stdout=subprocess.DEVNULL,
                              env={**os.environ, "PYTHONPATH": "tests/support"})  # fmt: skip
    try:
        noted = records(tmp_path, 2)
        children = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(driver.pid)], capture_output=True, text=True)
        hvdrun = next(int(line.split()[0]) for line in children.stdout.splitlines() if line.split()[1] == "hvdrun")
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait(PATIENCE)
    assert wait_for_nothing({**job_processes(noted, hvdrun), "worker": noted[1]["worker"]}) == []
    assert not is_alive(noted[0]["rank"])
