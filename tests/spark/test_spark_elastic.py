"""horovod.spark.run_elastic on real executors: ranks come when Spark has room, are replaced when executors die, and all of it
ends as it should."""

import io
import os
import signal
import threading

import pytest
from patience import left_of
from rank_side import place

import horovod.spark
from spark_deaths import VICTIM_RANK, die, records, train_elastic, wait_for_sizes, wait_for_slots


def no_stage_is_left(spark):
    """Spark's own listeners hear of a job's end a little later than the program."""
    return not left_of(spark.sparkContext.statusTracker().getActiveJobsIds)


def test_a_job_begins_with_num_proc_ranks(spark):
    wait_for_slots(2)
    assert horovod.spark.run_elastic(place, num_proc=2) == [(0, 2, 0, 2), (1, 2, 1, 2)]
    # Another task may join before the rank has ended.
    assert horovod.spark.run_elastic(place, num_proc=1, min_np=1, max_np=5)[0] == (0, 1, 0, 1)
    assert no_stage_is_left(spark)


def test_ranks_join_when_spark_has_room(spark, tmp_path):
    wait_for_slots(2)
    found = train_elastic(tmp_path, lambda: wait_for_sizes(tmp_path, [1, 2]), num_proc=1, max_num_proc=3)
    assert [rank for rank, *_ in found] == [0, 1]
    assert found[0][2:] == found[1][2:] and found[0][3] == [1, 2]
    assert no_stage_is_left(spark)  # the third task never had room


@pytest.mark.parametrize(
    ("victim", "how", "least", "sizes"),
    [
        ("executor", signal.SIGKILL, 1, [2, 1, 2]),
        ("executor", signal.SIGKILL, 2, [2]),
        ("agent", signal.SIGKILL, 1, [2, 1, 2]),
        ("agent", signal.SIGTERM, 1, [2, 1, 2]),  # it ends in order when its rank has left
    ],
)
def test_what_is_lost_is_replaced_while_the_others_keep_their_state(spark, tmp_path, victim, how, least, sizes):
    wait_for_slots(2)
    noted, err = {}, io.StringIO()

    def strike():
        noted.update(records(tmp_path, 2))
        wait_for_sizes(tmp_path, [2])
        os.kill(noted[VICTIM_RANK][victim], how)
        records(tmp_path, 3)
        wait_for_sizes(tmp_path, sizes)

    found = train_elastic(tmp_path, strike, num_proc=2, min_num_proc=least, stderr=err)
    assert [rank for rank, *_ in found] == [0, 1], err.getvalue()
    assert found[0][1] == noted[0]["rank"], "the rank that was left was started anew"
    assert found[1][1] not in {processes["rank"] for processes in noted.values()}
    assert found[0][2:] == found[1][2:] and found[0][3] == sizes
    assert "horovod.spark.run_elastic: a task has ended: " in err.getvalue()
    assert no_stage_is_left(spark)


def test_ranks_that_have_changed_too_often_end_the_job_for_good(spark, tmp_path):
    wait_for_slots(2)
    err = io.StringIO()

    def strike():
        noted = records(tmp_path, 2)
        wait_for_sizes(tmp_path, [2])
        os.kill(noted[VICTIM_RANK]["rank"], signal.SIGKILL)

    with pytest.raises(RuntimeError, match="exit code 247\n(.|\n)*number of resets during elastic job exceeded limit: 0"):
        train_elastic(tmp_path, strike, num_proc=2, min_num_proc=1, reset_limit=0, stderr=err)
    assert "started again" not in err.getvalue() and no_stage_is_left(spark)


def test_cancelling_the_callers_jobs_ends_an_elastic_job(spark, tmp_path):
    wait_for_slots(2)
    context = spark.sparkContext
    context.setJobGroup("of-the-caller", "a cell")
    try:
        death = die(tmp_path, lambda _: context.cancelJobGroup("of-the-caller"), run=horovod.spark.run_elastic)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert death.left == [] and isinstance(death.error, RuntimeError) and "cancelled" in str(death.error)


def test_ctrl_c_ends_an_elastic_job(spark, tmp_path):
    wait_for_slots(2)
    main = threading.main_thread().ident
    death = die(tmp_path, lambda _: signal.pthread_kill(main, signal.SIGINT), run=horovod.spark.run_elastic)
    assert death.left == [] and isinstance(death.error, KeyboardInterrupt)
    assert no_stage_is_left(spark)


def test_an_error_of_the_function_comes_to_the_driver(spark):
    wait_for_slots(2)

    def fails():
        raise ZeroDivisionError("of every process")

    with pytest.raises(ZeroDivisionError, match="of every process"):
        horovod.spark.run_elastic(fails, num_proc=1, max_num_proc=2, reset_limit=1, stderr=io.StringIO())
    assert no_stage_is_left(spark)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"num_proc": 2, "min_num_proc": 3}, "min_num_proc=3, num_proc=2 and max_num_proc=2 must not fall"),
        ({"num_proc": 2, "max_np": 1}, "max_num_proc=1 must not fall"),
        ({"num_proc": 2, "min_num_proc": 0}, "min_num_proc must be a whole number, 1 or more"),
        ({"num_proc": 2, "min_num_proc": 1, "min_np": 1}, "min_num_proc has a former name, and both were given"),
        ({"num_proc": 2, "reset_limit": -1}, "reset_limit must be a whole number"),
        ({"num_proc": 2, "max_num_proc": 3, "launcher": "task0"}, 'launcher="task0" keeps its ranks'),
    ],
)
def test_limits_that_cannot_be_are_refused(spark, words, told):
    with pytest.raises(ValueError, match=told):
        horovod.spark.run_elastic(place, **words)
