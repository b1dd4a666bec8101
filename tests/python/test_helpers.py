"""horovod.data, and the helpers of horovod.common and horovod.runner that scripts import."""

import subprocess
import sys
import threading
import time

import pytest
from patience import PATIENCE

from horovod.common import util
from horovod.common.exceptions import HorovodVersionMismatchError, HostsUpdatedInterrupt
from horovod.data import AsyncDataLoaderMixin, BaseDataLoader
from horovod.runner._agent import JoinOrder, Order
from horovod.runner._launch import Launch
from horovod.runner.util import threads
from horovod.spark._reach import Call


class Numbers(BaseDataLoader):
    def __init__(self, count, fail_at=None):
        self.count, self.fail_at = count, fail_at

    def __len__(self):
        return self.count

    def _iterate(self):
        for number in range(self.count):
            if number == self.fail_at:
                raise KeyError(number)
            yield number

    def _process_batch(self, batch):
        return batch * 2


class AsyncNumbers(AsyncDataLoaderMixin, Numbers):
    pass


def readers():
    return [thread for thread in threading.enumerate() if thread.name == "hvd-data"]


@pytest.mark.parametrize("room", [0, 1, 5, 100])
def test_a_loader_reads_ahead(room):
    loader = AsyncNumbers(async_loader_queue_size=room, count=20)
    for _ in range(2):
        assert list(loader) == list(Numbers(20)) == list(range(0, 40, 2))
    assert len(loader) == 20 and readers() == []


class Written(AsyncDataLoaderMixin, BaseDataLoader):
    """A loader that says itself what its batches are, and not by a base."""

    def __len__(self):
        return 3

    def _iterate(self):
        yield from "abc"


@pytest.mark.parametrize("options", [{}, {"async_loader_queue_size": 0}])
def test_a_loader_may_say_itself_what_its_batches_are(options):
    loader = Written(**options)
    assert list(loader) == ["a", "b", "c"] and readers() == []
    assert loader.async_loader_queue_size == options.get("async_loader_queue_size", 64)


@pytest.mark.parametrize("room", [0, 3])
def test_iterations_of_one_loader_do_not_disturb_each_other(room):
    loader = AsyncNumbers(async_loader_queue_size=room, count=6)
    outer = []
    for number in loader:
        outer.append(number)
        if number == 2:
            assert list(loader) == [0, 2, 4, 6, 8, 10]
    assert outer == [0, 2, 4, 6, 8, 10]
    pairs = zip(loader, loader)
    assert list(pairs) == [(number, number) for number in outer]
    loader.close_async_loader()  # the second iteration waits for one more call
    assert readers() == []


class Overriding(AsyncDataLoaderMixin):
    """A loader whose base says by __iter__ what its batches are, as torch's does."""

    def _iterate(self):
        yield from [1, 2, 3]

    def _process_batch(self, batch):
        return batch * 10


@pytest.mark.parametrize("room", [0, 2])
def test_batches_are_processed_with_and_without_a_thread(room):
    assert list(Overriding(room)) == [10, 20, 30]


def test_leaving_early_ends_the_thread():
    loader = AsyncNumbers(2, count=1000)
    for number in loader:
        if number == 10:
            break
    del number
    loader.close_async_loader()
    assert readers() == []
    loader.close_async_loader()
    assert list(loader)[-1] == 1998


READS_ON = """
import sys, torch
from horovod.data import AsyncDataLoaderMixin, BaseDataLoader

class Loader(BaseDataLoader):
    def _iterate(self):
        while True:
            yield torch.ones(200, 200) @ torch.ones(200, 200)

class AsyncLoader(AsyncDataLoaderMixin, Loader):
    pass

batches = iter(AsyncLoader(1000))
next(batches)
"""


@pytest.mark.parametrize("end, code", [("", 0), ("sys.exit(3)", 3), ("for batch in batches: raise KeyError(7)", 1)])
def test_a_process_may_end_while_a_loader_reads_on_in_torch(end, code):
    done = subprocess.run([sys.executable, "-c", READS_ON + end], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code and "terminate" not in done.stderr, done.stderr


def test_a_loader_that_is_stuck_does_not_keep_the_process():
    script = READS_ON.replace("yield torch", "yield 1; import time; time.sleep(3000); torch") + "sys.exit(3)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 3, done.stderr


def test_an_error_of_the_loader_is_raised_where_batches_are_taken():
    taken = []
    with pytest.raises(KeyError):
        for number in AsyncNumbers(3, count=10, fail_at=4):
            taken.append(number)
    assert taken == [0, 2, 4, 6] and readers() == []


def test_a_loader_that_defines_nothing():
    with pytest.raises(NotImplementedError):
        list(BaseDataLoader())
    with pytest.raises(NotImplementedError):
        len(BaseDataLoader())


def test_split_list():
    assert util.split_list(list(range(7)), 3) == [[0, 1, 2], [3, 4], [5, 6]]
    assert util.split_list([1], 4) == [[1]] and util.split_list([], 2) == []


def test_versions():
    assert util.is_version_greater_equal_than("2.13.0+cpu", "2.13") and util.is_version_greater_equal_than("2.10", "2.9.1")
    assert not util.is_version_greater_equal_than("1.9", "1.10.0")
    for wrong in ("x", 2, None):
        with pytest.raises(ValueError):
            util.is_version_greater_equal_than(wrong, "1.0")


def test_environment(monkeypatch):
    monkeypatch.setenv("A_NAME", "before")
    with util.env(A_NAME="now", B_NAME="new"):
        import os

        assert (os.environ["A_NAME"], os.environ["B_NAME"]) == ("now", "new")
        with util.env(A_NAME=None):
            assert "A_NAME" not in os.environ
    assert os.environ["A_NAME"] == "before" and "B_NAME" not in os.environ


def test_what_is_built():
    assert util.gloo_built() and util.mpi_built() in (True, False)
    assert util.extension_available("torch") and not util.extension_available("mxnet")
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__)
    with pytest.raises(ImportError):
        util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__)
    calls = []
    cached = util._cache(lambda value: calls.append(value) or value)
    assert cached(1) == cached(1) == 1 and calls == [1]


def test_small_helpers():
    assert [n for n in range(9) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8]
    assert util.is_iterable([]) and not util.is_iterable(3)
    assert issubclass(HorovodVersionMismatchError, ImportError) and HostsUpdatedInterrupt(True).skip_sync


def test_threads():
    seen = []
    threads.in_thread(seen.append, (1,)).join(PATIENCE)
    event, stop = threading.Event(), threading.Event()
    waiting = threads.on_event(event, seen.append, (2,))
    never = threads.on_event(threading.Event(), seen.append, (3,), stop=stop, check_stop_interval_s=0.01)
    event.set()
    stop.set()
    waiting.join(PATIENCE), never.join(PATIENCE)
    assert seen == [1, 2] and not never.is_alive()
    with pytest.raises(ValueError):
        threads.in_thread(seen.append, 1)
    with pytest.raises(ValueError, match="args must be a tuple, not int"):
        threads.on_event(event, seen.append, 1)
    with pytest.raises(ValueError, match="daemon=False needs a stop event"):
        threads.on_event(event, seen.append, (4,), daemon=False)
    assert seen == [1, 2]
    assert time.monotonic() > 0


@pytest.mark.parametrize("what", [
    Order("secret", 2, ["stack", "10.0.0.1:1"]),
    JoinOrder("key secret"),
    Call(["10.0.0.1"], 1, "secret"),
    Launch(2, [], {"HF_TOKEN": "secret"}, None, True, 0, b"secret", {"AWS_SECRET_ACCESS_KEY": "secret"})])
def test_what_travels_to_tasks_shows_nothing_secret_of_itself(what):
    assert "secret" not in f"{what}".lower()
