"""The ways in which a job runs under Spark: hvdrun here or in a task, started anew, several tasks of one executor; and what is
told before anything starts."""

import io
import os
import sys

import pytest

import horovod.spark
from horovod.runner import _agent, _launch
from horovod.spark import _session, _stage, _task
from rank_side import place


def test_hvdrun_runs_in_the_first_task(spark, capsys):
    def function(word):
        from sparkdl.horovod import log_to_driver

        print(f"{word} from {os.environ['HOROVOD_RANK']}")
        log_to_driver(f"a message of {os.environ['HOROVOD_RANK']}")
        return place()

    out = io.StringIO()
    answers = horovod.spark.run(function, args=("hello",), num_proc=2, stdout=out, launcher="task0")
    assert answers == [(0, 2, 0, 2), (1, 2, 1, 2)]
    assert sorted(out.getvalue().splitlines()) == ["[0]<stdout>:hello from 0", "[1]<stdout>:hello from 1"]
    assert sorted(capsys.readouterr().out.splitlines()) == ["a message of 0", "a message of 1"]


def test_a_rank_that_raises_is_told_from_the_first_task(spark):
    def function():
        raise ZeroDivisionError("of every rank")

    with pytest.raises(ZeroDivisionError, match="of every rank") as raised:
        horovod.spark.run(function, num_proc=2, stderr=io.StringIO(), launcher="task0")
    assert "in function" in str(raised.value.__cause__)


def test_executors_that_cannot_call_the_driver_call_the_first_task(spark, monkeypatch):
    """The driver tells its tasks an address where nobody listens; their own hvdrun is told right."""

    def nowhere(launch, driver):
        order = listens(launch, driver)
        return _agent.Order(order.key, order.tasks, [order.place[0], "127.0.0.1:1"])

    listens = _launch.Launch._order_of
    monkeypatch.setattr(_launch.Launch, "_order_of", nowhere)
    assert horovod.spark.run(place, num_proc=2, stderr=io.StringIO()) == [(0, 2, 0, 2), (1, 2, 1, 2)]
    with pytest.raises(RuntimeError, match="cannot call hvdrun back"):
        horovod.spark.run(place, num_proc=2, stderr=io.StringIO(), launcher="driver")


def test_a_job_that_fails_is_started_anew_as_often_as_said(spark, tmp_path):
    def function(folder, succeeds_at):
        if os.environ["HOROVOD_RANK"] != "0":
            return None
        attempts = len(os.listdir(folder))
        open(f"{folder}/{attempts}", "w").close()
        if attempts < succeeds_at:
            raise OSError(f"attempt {attempts}")
        return attempts

    err = io.StringIO()
    assert horovod.spark.run(function, args=(str(tmp_path), 2), num_proc=2, restarts=2, stderr=err) == [2, None]
    assert "the ranks are started again, 2 of 2" in err.getvalue()
    with pytest.raises(OSError, match="attempt 4"):
        horovod.spark.run(function, args=(str(tmp_path), 9), num_proc=2, restarts=1, stderr=io.StringIO())
    assert len(list(tmp_path.iterdir())) == 5
    with pytest.raises(ValueError, match="restarts must be a whole number"):
        horovod.spark.run(place, num_proc=2, restarts=-1)


def test_an_elastic_rank_that_fails_is_started_again_in_its_task(spark, tmp_path):
    def function(folder):
        import torch

        import horovod.torch as hvd

        hvd.init()
        open(f"{folder}/{hvd.rank()}-{os.getpid()}", "w").close()
        is_first = len([name for name in os.listdir(folder) if name.startswith("1-")]) == 1

        @hvd.elastic.run
        def train(state):
            while state.step < 6:
                hvd.allreduce(torch.ones(1), name="sum")
                state.step += 1
                state.commit()
                if state.step == 3 and hvd.rank() == 1 and is_first:
                    raise OSError("of the first process of rank 1")
            return state.step

        return train(hvd.elastic.TorchState(step=0))

    err = io.StringIO()
    assert horovod.spark.run_elastic(function, args=(str(tmp_path),), num_proc=2, reset_limit=1, stderr=err) == [6, 6]
    processes = [path.name.split("-")[0] for path in tmp_path.iterdir()]
    assert sorted(processes) == ["0", "1", "1"] and "the ranks are started again" not in err.getvalue()

    def fails():
        import horovod.torch as hvd

        hvd.init()
        raise ZeroDivisionError("of every process")

    with pytest.raises(ZeroDivisionError, match="of every process"):
        horovod.spark.run_elastic(fails, num_proc=2, reset_limit=1, stderr=err)
    assert "the ranks are started again" not in err.getvalue()


def test_a_result_that_spark_would_not_take_is_refused_by_its_rank(spark, monkeypatch):
    monkeypatch.setattr(_session.Session, "largest_result", 1000)
    with pytest.raises(ValueError, match="the result of rank 0 is 10.. bytes, more than the 1000 .*maxResultSize"):
        horovod.spark.run(lambda: b"x" * 1000, num_proc=1, stderr=io.StringIO())


def test_what_an_executor_lacks_is_named(spark, monkeypatch):
    monkeypatch.setattr(_agent.Order, "__init__", order_of_another_release)
    with pytest.raises(RuntimeError, match="the driver has hvdrun 0.0.1, and .* has 0.1.0"):
        horovod.spark.run(place, num_proc=2, stderr=io.StringIO())


def order_of_another_release(order, key, tasks, place):
    order.key, order.tasks, order.place, order.version = key, tasks, place, "0.0.1"


def test_an_executor_with_another_python_is_told(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.1")  # the driver's; Spark compares it in the executors
    for launcher in ("driver", "task0"):
        with pytest.raises(RuntimeError, match="Python in worker has different version.* than that in driver: 3.1,"):
            horovod.spark.run(place, num_proc=2, stderr=io.StringIO(), launcher=launcher)


def python_without(tmp_path, words):
    """A Python for executors that finds no packages; `words` come before it on its command line."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{words} exec {sys.executable} -S \"$@\"\n")
    script.chmod(0o755)
    return str(script)


def test_an_executor_without_this_package_is_told(spark, monkeypatch, tmp_path):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python_without(tmp_path, "PATH=/usr/bin:/bin"))
    with pytest.raises(RuntimeError, match="ModuleNotFoundError: No module named 'horovod'"):
        horovod.spark.run(place, num_proc=2, stderr=io.StringIO())


def test_an_executor_without_the_agent_is_told(spark, monkeypatch, tmp_path):
    """The package came along as with spark.submit.pyFiles: without its programs, and without pip's list of its files."""
    source = os.path.dirname(os.path.dirname(horovod.__file__))
    (tmp_path / "here").mkdir()
    for name in os.listdir(source):
        if not name.startswith("hvdrun-"):
            (tmp_path / "here" / name).symlink_to(os.path.join(source, name))
    others = (path for path in sys.path if path.endswith("site-packages") and not os.path.samefile(path, source))
    found = ":".join((str(tmp_path / "here"), *others))
    words = f'PATH=/usr/bin:/bin PYTHONPATH="$PYTHONPATH:{found}"'
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python_without(tmp_path, words))
    with pytest.raises(RuntimeError, match="FileNotFoundError: hvdrun-agent is neither beside"):
        horovod.spark.run(place, num_proc=2, stderr=io.StringIO())


def test_ranks_may_leave_sparks_gpus_aside(monkeypatch):
    monkeypatch.setattr(_task, "gpu_addresses", lambda: ["2"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", raising=False)
    assert _task.environment_of_ranks()["CUDA_VISIBLE_DEVICES"] == "2"
    monkeypatch.setenv("HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", "1")
    assert "CUDA_VISIBLE_DEVICES" not in _task.environment_of_ranks() and _task.environment_of_ranks()[_task.GPUS] == "2"


def test_wrong_words_are_refused_before_anything_starts(spark):
    with pytest.raises(ValueError, match="launcher must be one of auto, driver, task0, not 'ssh'"):
        horovod.spark.run(place, num_proc=2, launcher="ssh")
    with pytest.raises(ValueError, match="env must be a dict"):
        horovod.spark.run(place, num_proc=2, env=["A=1"])
    with pytest.raises(ValueError, match="not mpirun"):
        horovod.spark.run(place, num_proc=2, extra_mpi_args="--mca x y")
    for heartbeat in (0, 0.05, 4000, True, "1", float("nan")):
        with pytest.raises(ValueError, match="heartbeat must be a number of seconds, 0.1 to 3600"):
            horovod.spark.run(place, num_proc=2, heartbeat=heartbeat)


def test_use_mpi_is_no_error(spark):
    with pytest.warns(UserWarning, match="use_mpi changes nothing"):
        assert horovod.spark.run(place, num_proc=2, use_mpi=True) == [(0, 2, 0, 2), (1, 2, 1, 2)]


def test_the_reason_is_found_in_sparks_text():
    text = """Job aborted due to stage failure: Task 0 failed 1 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "x.py", line 1, in run
    raise RuntimeError("why it was")
RuntimeError: why it was

\tat org.apache.spark.api.python.BasePythonRunner
java.lang.IllegalStateException: not this"""
    assert _stage.reason_of(Exception(text)) == "RuntimeError: why it was"
    text = "An error occurred\n: org.apache.spark.SparkException: Job 3 cancelled part of group"
    assert _stage.reason_of(Exception(text)) == "Job 3 cancelled part of group"
    assert _stage.reason_of(KeyError()) == "KeyError"
    text = "ModuleNotFoundError: No module named 'horovod'"
    assert _stage.reason_of(Exception(text)).startswith(f"{text}; ") and "PYSPARK_PYTHON" in _stage.reason_of(Exception(text))


def test_the_check_tells_what_a_job_could_do(spark, tmp_path):
    found = horovod.spark.check(num_proc=2, store=str(tmp_path))
    assert found.problems == [] and found.is_ok and found.slots == 2
    assert [task.partition for task in found.tasks] == [0, 1]
    for task in found.tasks:
        assert task.release == horovod.hvdrun_version and task.agent and task.host == os.uname().nodename
        assert task.calls_driver == task.called_by_driver == task.store == "" and task.unreached == {}
    text = str(found)
    assert "task slots: 2; looked at 2 of 2 tasks" in text and text.endswith("a job can run")
    assert list(tmp_path.iterdir()) == []


def test_the_check_names_what_is_wrong(spark, tmp_path):
    found = horovod.spark.check(num_proc=3)
    assert not found.is_ok and "3 ranks need as many task slots at the same time, and the cluster has 2" in str(found)
    # Each process has a /proc/self of its own: a folder that the driver does not share.
    found = horovod.spark.check(num_proc=1, store="memory://here")
    assert not found.is_ok and "the store is not shared" in str(found) and found.tasks[0].store
