"""How long horovod.spark.run waits for executors that have not registered yet."""

import itertools

import pytest

from horovod.spark import _session
from horovod.spark._session import Session


class Clock:
    """The time of whoever waits for slots: it passes while he sleeps, and only then."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(_session, "time", clock)
    return clock


class Registering(Session):
    """A cluster whose slots are these, one after the other; the last number stays."""

    is_dynamic = False
    application_id = ""
    numbers = itertools.count()

    def __init__(self, *slots, application=None, gpus=0, **settings):
        super().__init__(gpus)
        self.application_id = application or f"application {next(self.numbers)}"
        self.left = list(slots)
        self.settings = {f"spark.{name.replace('_', '.')}": value for name, value in settings.items()}

    def conf(self, name, default):
        return self.settings.get(name, default)

    def slots(self):
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


def test_each_executor_that_registers_begins_the_patience_again(clock):
    cluster = Registering(0, 0, 0, 1, 1, 2, 2, 3, 3, 4)
    cluster.check_slots(4, patience_s=0.25, limit_s=60)
    assert cluster.left == [4] and clock.now > 0.5


def test_too_few_slots_are_an_error_when_no_more_come():
    with pytest.raises(ValueError, match="num_proc=4 needs as many task slots at the same time, and the cluster has 3"):
        Registering(1, 3).check_slots(4, patience_s=0.2, limit_s=60)


def test_a_cluster_without_executors_has_until_the_limit():
    cluster = Registering(*[0] * 8, 2)
    cluster.check_slots(2, patience_s=0.01, limit_s=60)
    with pytest.raises(ValueError, match="the cluster has 0"):
        Registering(0).check_slots(2, patience_s=60, limit_s=0.2)


def test_an_executor_that_was_lost_has_until_the_limit_to_come_back(clock):
    """What takes its place may be a machine that has yet to start."""
    cluster = Registering(2, 2, 4, 3, *[2] * 30, 4)
    cluster.check_slots(5 - 1, patience_s=0.5, limit_s=60)  # enough are there at once
    cluster = Registering(2, 3, *[2] * 30, 4)
    cluster.check_slots(4, patience_s=0.5, limit_s=60)
    assert clock.now > 3 and cluster.left == [4]
    with pytest.raises(ValueError, match="the cluster has 2"):
        Registering(2, 3, 2).check_slots(4, patience_s=0.5, limit_s=5)


def test_an_executor_that_was_lost_since_an_earlier_job_of_the_application_may_come_back_too(clock):
    """An estimator's fit that goes on after a loss is another job."""
    Registering(4, application="of the loss").check_slots(4, patience_s=0.5, limit_s=60)
    again = Registering(*[2] * 30, 4, application="of the loss")
    again.check_slots(4, patience_s=0.5, limit_s=60)
    assert clock.now > 2.5 and again.left == [4]
    for other in ({"application": "another"}, {"application": "of the loss", "gpus": 2}):
        begin = clock.now
        with pytest.raises(ValueError, match="the cluster has 2"):
            Registering(2, **other).check_slots(4, patience_s=0.5, limit_s=60)
        assert clock.now - begin < 2


def test_executors_that_the_cluster_is_told_to_have_are_awaited_until_the_limit(clock):
    asked = {"executor_instances": "2", "executor_cores": "4", "task_cpus": "2"}
    Registering(*[2] * 30, 4, **asked).check_slots(4, patience_s=0.5, limit_s=60)
    assert clock.now > 2.5
    for more in ({"executor_cores": "2"}, {"task_resource_gpu_amount": "1", "executor_resource_gpu_amount": "1"}):
        begin = clock.now
        with pytest.raises(ValueError, match="the cluster has 2"):
            Registering(2, **{**asked, **more}).check_slots(4, patience_s=0.5, limit_s=60)
        assert clock.now - begin < 2


def test_a_cluster_that_does_not_tell_its_slots_is_believed():
    Registering(None).check_slots(4, patience_s=0, limit_s=0)
