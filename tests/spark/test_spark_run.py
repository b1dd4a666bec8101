"""horovod.spark.run and HorovodRunner on real executors."""

import io
import os
import pathlib
import re
import sys
import tempfile
import time
import types

import pytest
from patience import left_of

import horovod.spark
from horovod.spark import _session


def here():
    return {name: os.environ.get(name) for name in ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "MASTER_ADDR",
                                                    "FROM_ENV", "HOROVOD_TIMELINE")}


def test_results_come_in_rank_order_and_lines_are_tagged(spark, monkeypatch):
    monkeypatch.setenv("HOROVOD_TIMELINE", "/tmp/timeline-of-the-driver")

    def function(word):
        print(f"{word} from {os.environ['HOROVOD_RANK']}")
        return here()

    out = io.StringIO()
    answers = horovod.spark.run(function, args=("hello",), num_proc=2, env={"FROM_ENV": "yes"}, stdout=out)
    assert [answer["HOROVOD_RANK"] for answer in answers] == ["0", "1"]
    assert {answer["HOROVOD_SIZE"] for answer in answers} == {"2"}
    assert [answer["HOROVOD_LOCAL_RANK"] for answer in answers] == ["0", "1"]  # both executors are on this machine
    assert {answer["FROM_ENV"] for answer in answers} == {"yes"}
    assert {answer["HOROVOD_TIMELINE"] for answer in answers} == {"/tmp/timeline-of-the-driver"}
    assert sorted(out.getvalue().splitlines()) == ["[0]<stdout>:hello from 0", "[1]<stdout>:hello from 1"]


def test_ranks_have_the_modules_that_spark_was_given(spark, tmp_path, monkeypatch):
    (tmp_path / "hvd_shipped.py").write_text("WORD = 'shipped'\n")
    spark.sparkContext.addPyFile(str(tmp_path / "hvd_shipped.py"))
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "userFiles" not in path])  # as executors on other machines

    def word():
        import hvd_shipped

        return hvd_shipped.WORD

    assert horovod.spark.run(word, num_proc=2) == ["shipped"] * 2


def test_output_that_cannot_be_written_is_refused_first(tmp_path):
    path = tmp_path / "out"
    with pytest.raises(TypeError, match=r"stdout must be a file opened for text.*write stdout=open\(path, \"w\"\)"):
        horovod.spark.run(here, num_proc=2, stdout=str(path))
    with open(path, "wb") as file, pytest.raises(TypeError, match="stderr must be a file opened for text"):
        horovod.spark.run(here, num_proc=2, stderr=file)


def test_a_task_of_spark_cannot_start_a_job(spark):
    def why_not(_):
        import horovod.spark as jobs

        try:
            return str(jobs.run(print, num_proc=1))
        except ValueError as error:
            return str(error)

    (told,) = spark.sparkContext.parallelize([0], 1).map(why_not).collect()
    assert "call it on the driver, not in a task of Spark" in told


def test_nothing_of_a_job_is_left_in_the_workers(spark):
    def names(_):
        return [name for name in os.environ if name.startswith(("HOROVOD_", "HVD_", "FROM_", "MASTER_")) or name == "RANK"]

    def seen():
        return set(spark.sparkContext.parallelize(range(8), 8).flatMap(names).collect())

    before = seen()
    horovod.spark.run(here, num_proc=2, env={"FROM_ENV": "yes"})
    assert seen() == before and "FROM_ENV" not in before


def test_a_rank_that_raises_raises_here_with_its_traceback(spark):
    def function():
        if os.environ["HOROVOD_RANK"] == "1":
            raise ZeroDivisionError("of rank 1")
        time.sleep(600)

    with pytest.raises(ZeroDivisionError, match="of rank 1") as raised:
        horovod.spark.run(function, num_proc=2, stderr=io.StringIO())
    told = str(raised.value.__cause__)
    assert f"on rank 1 ({os.uname().nodename})" in told and "in function" in told
    assert "The last lines of the job:" in told and "ZeroDivisionError: of rank 1" in told.partition("last lines")[2]


def test_more_ranks_than_slots_are_refused_at_once(spark):
    with pytest.raises(ValueError, match="num_proc=3 .* the cluster has 2"):
        horovod.spark.run(here, num_proc=3, start_timeout=1)


def test_what_cannot_be_pickled_is_named(spark):
    lock = __import__("threading").Lock()

    def holds_a_lock():
        return lock

    with pytest.raises(TypeError, match=r"holds_a_lock .*its variable 'lock' \(a _thread.lock\)"):
        horovod.spark.run(holds_a_lock, num_proc=1)
    with pytest.raises(TypeError, match=r"its argument 'given', item 'deep', item 1 \(a _thread.lock\)"):
        horovod.spark.run(here, kwargs={"given": {"deep": [1, lock]}}, num_proc=1)


def test_horovod_runner_in_both_modes(spark, capfd):
    from sparkdl import HorovodRunner

    def main(scale):
        import torch

        import horovod.torch as hvd
        from sparkdl.horovod import log_to_driver

        hvd.init()
        total = hvd.allreduce(torch.ones(3) * (hvd.rank() + 1) * scale, op=hvd.Sum)
        print("only with verbosity all")
        if hvd.rank() == 0:
            log_to_driver("the total is " + str(total.tolist()))
            return hvd.rank(), total.tolist()
        return __import__("threading").Lock()  # it cannot be pickled, and is not wanted

    assert HorovodRunner(np=2).run(main, scale=2) == (0, [6.0, 6.0, 6.0])
    out, err = capfd.readouterr()
    assert "the total is [6.0, 6.0, 6.0]" in out and "only with" not in out + err
    kept = re.search(r"is kept in (/\S+/horovodrunner-\w+\.log) on the driver", err)[1]
    text = pathlib.Path(kept).read_text()
    os.unlink(kept)
    assert "[0]<stdout>:only with verbosity all" in text and "[1]<stdout>:only with verbosity all" in text
    assert HorovodRunner(np=1, driver_log_verbosity="all").run(main, scale=1) == (0, [1.0, 1.0, 1.0])
    assert "[0]<stdout>:only with verbosity all" in capfd.readouterr().out


@pytest.mark.parametrize("launcher", ["driver", "task0"])
def test_an_argument_may_be_as_large_as_a_model(spark, launcher):
    model = os.urandom(3_000_000)

    def train(received):
        return received == model, os.environ.get("HVD_RUN_FUNCTION_FILE")

    assert horovod.spark.run(train, args=(model,), num_proc=2, launcher=launcher) == [(True, None)] * 2
    # The results are here before Spark's tasks have ended, whose agents remove their files.
    assert left_of(lambda: list(pathlib.Path(tempfile.gettempdir()).glob("hvd-function-*"))) == []


def test_a_horovod_runner_with_np_0_takes_all_slots(spark):
    from sparkdl import HorovodRunner

    def main():
        import os

        return os.environ["HOROVOD_SIZE"]

    with pytest.warns(DeprecationWarning, match="one rank for each slot"):
        runner = HorovodRunner(np=0)
    assert runner.run(main) == "2"


def test_a_horovod_runner_with_np_0_takes_the_slots_and_not_the_parallelism(monkeypatch):
    from sparkdl import HorovodRunner

    session = types.SimpleNamespace(slots=lambda: 3, default_parallelism=lambda: 200)
    monkeypatch.setattr(_session, "active", lambda: session)
    monkeypatch.setattr(horovod.spark, "run", lambda main, **words: [words["num_proc"]])
    with pytest.warns(DeprecationWarning):
        runner = HorovodRunner(np=0)
    assert runner.run(here) == 3
    session.slots = lambda: None  # a cluster that does not tell
    assert runner.run(here) == 200 and HorovodRunner(np=2).run(here) == 2


def test_names_that_sparkdl_had_say_where_they_are():
    from sparkdl.xgboost import XgboostClassifier, XgboostRegressor

    for moved, place in ((XgboostRegressor, "SparkXGBRegressor"), (XgboostClassifier, "SparkXGBClassifier")):
        with pytest.raises(NotImplementedError, match=f"xgboost.spark.{place} of the package xgboost"):
            moved(maxDepth=3)
    with pytest.raises(ImportError, match="Deep Learning Pipelines, which has ended"):
        from sparkdl import DeepImageFeaturizer  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name"):
        from sparkdl import NoSuchName  # noqa: F401


def test_horovod_runner_without_spark():
    from sparkdl import HorovodRunner

    assert HorovodRunner(np=-2).run(here)["HOROVOD_SIZE"] == "2"
    assert HorovodRunner(-1).run(here)["HOROVOD_SIZE"] == "1"
