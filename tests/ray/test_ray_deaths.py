"""One process of a job on Ray is killed: the exception says which rank it met, and no process of the job is left."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from horovod.ray import RayExecutor
from patience import PATIENCE
from spark_deaths import is_alive, own_hvdrun, records, wait_for_nothing

OURS = ("rank", "agent", "guardian")
# What the exception must say. hvdrun itself cannot tell of its own end.
TOLD = {
    "actor": "with rank 1: the task that started it is over",
    "guardian": "rank 1",
    "agent": "rank 1",
    "rank": "rank 1 .*signal 9|rank 1 .*SIGKILL",
    "hvdrun": "hvdrun ended with exit code -9",
}


def record(folder):
    """In a rank: notes the processes that it hangs on, and waits to be ended."""
    found, pid = {}, os.getpid()
    for name in (*OURS, "actor"):
        found[name] = pid
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    part = pathlib.Path(folder) / f"{os.environ['HOROVOD_RANK']}.part"
    part.write_text(json.dumps(found))
    part.rename(part.with_suffix(".json"))
    threading.Event().wait()


def started(**arguments):
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=PATIENCE, placement_group_timeout_s=PATIENCE), **arguments)
    executor.start()
    return executor


@pytest.mark.parametrize("victim", TOLD)
def test_what_is_killed_is_named_and_nothing_is_left(cluster, tmp_path, monkeypatch, victim):
    monkeypatch.setattr("horovod.ray._adapter.AGENTS_WORD_S", PATIENCE)
    executor = started(num_hosts=2)
    try:
        executor.run_remote(record, args=[str(tmp_path)])
        noted = records(tmp_path, 2)
        hvdrun = own_hvdrun()
        os.kill({**noted[1], "hvdrun": hvdrun}[victim], signal.SIGKILL)
        with pytest.raises(RuntimeError, match=TOLD[victim]):
            executor.run(lambda: None)  # it comes after record(), which never returns
        left = {f"{name} of rank {rank}": found[name] for rank, found in noted.items() for name in OURS}
        assert wait_for_nothing({**left, "hvdrun": hvdrun}) == []
        executor.start()
        assert executor.run(lambda: os.environ["HOROVOD_RANK"]) == ["0", "1"]
    finally:
        executor.shutdown()


def test_a_rank_that_dies_between_calls_is_told_by_the_next(cluster, monkeypatch):
    monkeypatch.setattr("horovod.ray._adapter.AGENTS_WORD_S", PATIENCE)
    executor = started(num_workers=2)
    try:
        pids = executor.run(os.getpid)
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(RuntimeError, match=TOLD["rank"]):
            executor.run(os.getpid)
    finally:
        executor.shutdown()


DRIVER = """
import json
import sys
import ray
from horovod.ray import RayExecutor
from test_ray_deaths import record

ray.init(address=sys.argv[2], log_to_driver=False)
settings = RayExecutor.create_settings(timeout_s=PATIENCE, placement_group_timeout_s=PATIENCE)
executor = RayExecutor(settings, **json.loads(sys.argv[3]))
executor.start()
executor.run(record, args=[sys.argv[1]])
""".replace("PATIENCE", str(PATIENCE))


@pytest.mark.parametrize("arguments", [{"num_workers": 2}, {"min_workers": 2, "max_workers": 2}], ids=["static", "elastic"])
def test_a_killed_driver_leaves_nothing(cluster, tmp_path, arguments):
    paths = os.pathsep.join(["tests/support", os.path.dirname(__file__)])
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path), cluster, json.dumps(arguments)], stdout=subprocess.DEVNULL,
                              env={**os.environ, "PYTHONPATH": paths})  # fmt: skip
    try:
        noted = records(tmp_path, 2, lambda: driver.poll() is not None)
        children = pathlib.Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    finally:
        driver.kill()
        driver.wait(PATIENCE)
    left = {f"{name} of rank {rank}": found[name] for rank, found in noted.items() for name in (*OURS, "actor")}
    assert wait_for_nothing({**left, **{f"child {pid}": int(pid) for pid in children}}) == []
    assert not is_alive(noted[0]["rank"])
