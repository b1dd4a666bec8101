"""Names that scripts and Horovod's own tests import can be imported, without pyspark, and say what to use instead."""

import importlib
import inspect
import os
import pickle
import threading

import pytest

from horovod.runner._culprit import find_culprit
from horovod.runner._exchange import MOST, Lines
from horovod.spark.common.util import host_hash, to_list

NAMES = {
    "horovod.runner.common.util.codec": ["dumps_base64", "loads_base64"],
    "horovod.runner.common.util.safe_shell_exec": ["execute"],
    "horovod.runner.common.util.secret": ["compute_digest"],
    "horovod.runner.common.util.settings": ["BaseSettings", "Settings"],
    "horovod.runner.common.util.timeout": ["Timeout"],
    "horovod.runner.common.util.tiny_shell_exec": ["execute"],
    "horovod.spark.driver.driver_service": ["SparkDriverService", "SparkDriverClient"],
    "horovod.spark.driver.host_discovery": ["SparkDriverHostDiscovery"],
    "horovod.spark.driver.rsh": ["rsh"],
    "horovod.spark.runner": ["_task_fn"],
    "horovod.spark.task.gloo_exec_fn": ["main"],
    "horovod.spark.task.mpirun_exec_fn": ["main"],
    "horovod.spark.task.task_service": ["SparkTaskService", "SparkTaskClient"],
}


@pytest.mark.parametrize("module", NAMES)
def test_what_stands_for_horovods_services_says_so_when_it_is_used(module):
    for name in NAMES[module]:
        with pytest.raises(NotImplementedError, match=f"{module}.{name} is not supported: .* use horovod.run"):
            getattr(importlib.import_module(module), name)(1)


def test_the_names_of_horovods_run_apis_are_there():
    from horovod.runner.mpi_run import is_open_mpi
    from horovod.spark.runner import run, run_elastic
    from horovod.spark.task import get_available_devices

    assert not is_open_mpi() and get_available_devices() == []
    # Horovod's arguments come first and in its order, so that calls by position mean the same.
    assert list(inspect.signature(run).parameters)[:5] == ["fn", "args", "kwargs", "num_proc", "start_timeout"]
    assert list(inspect.signature(run_elastic).parameters)[:6] == ["fn", "args", "kwargs", "num_proc", "min_num_proc",
                                                                   "max_num_proc"]  # fmt: skip


def test_horovod_estimator_says_what_becomes_of_its_arguments():
    from sparkdl.estimators.horovod_estimator.estimator import HorovodEstimator

    with pytest.raises(NotImplementedError) as refused:
        HorovodEstimator(modelFn=None, featureMapping={}, modelDir="/x", labelCol="y", batchSize=1, maxSteps=1)
    for old in ("modelFn", "featureMapping", "labelCol", "batchSize", "maxSteps", "isValidationCol", "modelDir"):
        assert old in str(refused.value)


def test_horovod_runners_signature_is_sparkdls():
    from sparkdl.horovod.runner_base import HorovodRunner

    made = inspect.getfullargspec(HorovodRunner.__init__)
    assert made.args == ["self", "np", "driver_log_verbosity"]  # sparkdl has them by name only; documents write np by place too
    assert made.defaults == ("log_callback_only",)
    ran = inspect.getfullargspec(HorovodRunner.run)
    assert (ran.args, ran.varargs, ran.varkw, ran.defaults) == (["self", "main"], None, "kwargs", None)


def test_a_container_and_a_salt_make_another_host_of_a_host(monkeypatch):
    plain = host_hash()
    assert host_hash() == plain != host_hash("salt")
    monkeypatch.setenv("CONTAINER_ID", "one")
    assert host_hash() not in (plain, host_hash("salt"))


def test_one_item_stands_for_all_of_a_list():
    assert to_list(None, 2) is None
    assert to_list("a", 2) == to_list(["a"], 2) == ["a", "a"]
    with pytest.raises(ValueError, match="a list of 2"):
        to_list(["a", "b"], 3)


class Holder:
    def __init__(self):
        self.fine = 1
        self.deep = {"locks": [threading.Lock()]}


def test_what_cannot_be_pickled_is_found():
    holder, lock = Holder(), threading.Lock()

    def by_variable():
        return holder

    def by_default(given=lock):
        return given

    def through_another():
        return by_variable()

    at_the_end = "attribute '.deep', item 'locks', item 0 (a _thread.lock)"
    assert find_culprit(by_variable, (), {}) == f"its variable 'holder', {at_the_end}"
    assert find_culprit(by_default, (), {}) == "its default 0 (a _thread.lock)"
    assert find_culprit(through_another, (), {}) == f"its variable 'by_variable', its variable 'holder', {at_the_end}"
    assert find_culprit(len, (1, [2, lock]), {}) == "its argument 1, item 1 (a _thread.lock)"
    assert find_culprit(len, (), {"word": holder}) == f"its argument 'word', {at_the_end}"
    assert find_culprit(len, (1,), {}) is None


def test_a_result_over_the_limit_is_refused_in_the_rank(monkeypatch):
    from horovod.runner import _exchange

    lines = Lines(b"payload")
    for name, value in {**lines.environment, MOST: "10", "HVD_RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_exchange, "_log_word", None)
    reply = _exchange.Reply()
    reply.check_size(b"x" * 10)
    with pytest.raises(ValueError, match="the result of rank 3 is 11 bytes, more than the 10"):
        reply.check_size(b"x" * 11)


def test_the_result_of_a_rank_that_was_started_again_is_its_last_ones(monkeypatch):
    from horovod.runner import _exchange

    lines = Lines(b"payload")
    monkeypatch.setattr(_exchange, "_log_word", None)
    monkeypatch.setattr(_exchange, "_LINE_BYTES", 16)  # so that each result is of several lines
    received, sent = os.pipe()

    def send(value):
        for name, text in {**lines.environment, "HVD_RANK": "3"}.items():
            monkeypatch.setenv(name, text)
        with monkeypatch.context() as within:
            within.setattr(_exchange.os, "dup", lambda _: sent)
            _exchange.Reply().send(value)
        return os.read(received, 1 << 16).splitlines(keepends=True)

    whole, cut = send("the first"), send("the second")[:2]
    for line in [*whole, *cut, *send("the third")]:
        assert lines.take(b"[3]<stdout>:" + line) == b""
    assert pickle.loads(lines.result(3)) == "the third"


def test_settings_of_spark_have_horovods_names():
    from horovod.spark import conf

    pairs = {name: value for name, value in vars(conf).items() if isinstance(value, tuple)}
    assert {key for key, _ in pairs.values()} == set(conf.SPARK_CONF_DEFAULT_VALUES)
    assert all(isinstance(word, str) for pair in pairs.values() for word in pair) and len(pairs) == 17
    assert conf.SPARK_CONF_ALWAYS_RESTART_FAILED_TASK == ("spark.task.maxFailures", str(2**31 - 1))
    assert conf.SPARK_CONF_BLACKLIST_ENABLED[1] == "true" and pairs["SPARK_CONF_DONT_REUSE_FAILING_NODE"][1] == "1"
