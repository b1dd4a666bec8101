"""Ranks of an elastic job that are stopped while the others form another generation, and then go on: they are told that
theirs is over, and join the others."""

import contextlib
import os
import pathlib
import re
import signal
import sys

import pytest

from hvdrun import HVDRUN, ROOT, env_with, read_until, start, wait_until_gone
from lab import wait_until
from patience import PATIENCE
from stopped import await_states

SCRIPT = str(ROOT / "tests/support/offered_steps.py")


def listens(pid):
    """Whether it waits for other ranks to connect, in a generation that has taken it in."""
    accepts = 0x10000  # as /proc/net/unix has it
    sockets = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]]
    listening = {f"socket:[{fields[6]}]" for fields in sockets if int(fields[3], 16) & accepts}
    try:
        return any(os.readlink(fd) in listening for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False  # it has closed one meanwhile


class Job:
    """Four ranks on this machine, which train until `end`."""

    def __init__(self, folder, marker):
        self.gate, self.marker = folder / "gate", marker
        self.job = start("-np", 4, "--min-np", 2, sys.executable, SCRIPT, 1, self.gate, env=env_with(marker))
        lines = "".join(self.read("size 4 rank", 4))
        self.pids = {int(rank): int(pid) for rank, pid in re.findall(r"size 4 rank (\d) .* pid (\d+)", lines)}

    def read(self, pattern, count=1):
        return read_until(self.job.stdout, pattern, count)

    def stop(self, rank):
        os.kill(self.pids[rank], signal.SIGSTOP)
        await_states([self.pids[rank]], True)

    def go_on(self, rank):
        os.kill(self.pids[rank], signal.SIGCONT)

    def kill(self, rank):
        os.kill(self.pids[rank], signal.SIGKILL)

    def await_generation(self, number):
        read_until(self.job.stderr, f"generation {number}: ")

    def end(self):
        """All four train together again, those that were killed too."""
        lines = self.read("size 4 rank", 4)
        self.gate.touch()
        out, err = self.job.communicate(timeout=PATIENCE)
        assert self.job.returncode == 0, err
        steps = re.findall(r"ended at (\d+) as rank \d of 4", out)
        assert len(steps) == 4 and len(set(steps)) == 1, out
        assert wait_until_gone(self.marker) == {}
        return "".join(lines) + out


@pytest.fixture
def job(tmp_path, marker):
    return Job(tmp_path, marker)


def test_one_that_works_is_told_who_was_lost_and_joins(job):
    job.stop(1)
    job.kill(2)
    job.await_generation(2)
    job.go_on(1)
    (told,) = [line for line in job.read(r"\[1\]<stdout>:told:") if "[1]" in line and "told:" in line]
    assert "rank 2" in told and "SIGKILL" in told, told
    job.end()


def test_one_that_sleeps_through_several_generations_joins_the_newest(job):
    job.stop(1)
    job.kill(2)
    job.await_generation(2)
    job.kill(3)
    job.await_generation(3)
    job.go_on(1)
    job.read(r"\[1\]<stdout>:told:")
    job.end()


def test_one_that_has_the_secret_of_a_generation_that_never_was_joins_the_next(job):
    """It is stopped while it waits in the second generation for another one, who is stopped, and then killed."""
    job.stop(3)
    job.kill(2)
    job.await_generation(2)
    job.read(r"\[0\]<stdout>:told:")
    wait_until(lambda: listens(job.pids[0]), "it does not wait for the others")
    job.stop(0)
    job.kill(3)
    job.await_generation(3)
    job.go_on(0)
    job.end()


def test_ranks_of_a_host_that_was_given_up_are_ended_when_it_goes_on(lab3):
    """Its agent was stopped too. The others train without it, and nothing of it disturbs them."""
    gate = lab3.shared / "gate"
    job = lab3.popen(HVDRUN, "-np", "3", "-H", "node1:1,node2:1,node3:1", "--min-np", "2", "--heartbeat", "1",
                     "--reconnect-timeout", "4", sys.executable, SCRIPT, "1", gate)  # fmt: skip
    read_until(job.stdout, "size 3 rank", 3)
    pids = [process.pid for process in lab3.ps("node3") if "sshd" not in process.args]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    await_states(pids, True)
    read_until(job.stderr, "generation 2: 2 ranks train together")
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # the first that goes on may end the others
            os.kill(pid, signal.SIGCONT)
    read_until(job.stdout, "size 2 rank", 2)
    assert lab3.wait_for_no_processes("node3") == []
    gate.touch()
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, err
    assert len(set(re.findall(r"ended at (\d+) as rank \d of 2", out))) == 1, out
    assert lab3.wait_for_no_processes() == []
