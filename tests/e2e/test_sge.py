"""hvdrun within a job of a real Grid Engine, on hosts of a lab: the same promises as over SSH."""

import contextlib
import os
import re
import signal
import subprocess

import pytest

import sge as sge_support
from hvdrun import BIN, HVDRUN, processes_with, wait_until_gone, without_copies
from lab import Lab, wait_until
from patience import PATIENCE

pytestmark = pytest.mark.skipif(sge_support.missing() is not None, reason=sge_support.missing() or "")
AGENT = str(BIN / "hvdrun-agent")
UP = "echo up $RANK; sleep 1000 & wait"


@pytest.fixture(scope="module")
def sge(lab_possible):
    with Lab(3) as lab:
        engine = sge_support.Sge(lab)
        engine.start()
        yield engine


class Job:
    """A job of qsub that runs hvdrun; all its processes hold the marker."""

    def __init__(self, engine, marker, folder):
        self.engine = engine
        self.marker = marker
        self.out = folder / "out"
        self.script = folder / "train.sh"
        self.qsub = None
        self.said = ""  # by qsub

    def submit(self, *words, options=("-pe", "mpi", "4"), before=""):
        name, value = self.marker.split("=")
        quoted = " ".join("'" + str(word).replace("'", "'\\''") + "'" for word in words)
        self.script.write_text(f"#!/bin/sh\n{before}exec {HVDRUN} {quoted}\n")
        self.qsub = self.engine.lab.popen("qsub", "-sync", "y", "-V", "-cwd", "-j", "y", "-o", self.out, *options,
                                          self.script, env={**self.engine.environment, name: value})

    def output(self):
        return self.said + (self.out.read_text(errors="replace") if self.out.exists() else "")

    def wait_for(self, pattern, count=1):
        wait_until(lambda: len(re.findall(pattern, self.output(), re.M)) >= count or self.qsub.poll() is not None,
                   f"no {pattern!r} in {self.output()}")
        assert self.qsub.poll() is None, self.output()

    def end(self):
        """The exit code of qsub: the job's own, and 1 where it was killed."""
        _, self.said = self.qsub.communicate(timeout=PATIENCE)
        return self.qsub.returncode

    def order(self, *command):
        self.engine.run(*command, re.search(r"SGE job (\d+)", self.output())[1])

    def pids_of(self, program):
        looks = {pid: args for pid, args in processes_with(self.marker).items() if args.startswith(program)}
        return without_copies(looks, 1)


@pytest.fixture
def job(sge, marker):
    folder = sge.lab.shared / marker.split("=")[1]
    folder.mkdir()
    started = Job(sge, marker, folder)
    yield started
    left = wait_until_gone(marker)
    assert not left, started.output()
    # Grid Engine has freed the job's slots, so that the next test finds all nodes idle.
    wait_until(lambda: not sge.client("qstat").stdout, "the job is still there")


def tagged(output):
    return sorted(line for line in output.splitlines() if re.match(r"\[\d+\]<stdout>:", line))


def test_the_job_s_hosts_are_used_and_told_in_one_line(job):
    job.submit("sh", "-c", "echo $RANK of $WORLD_SIZE on $(hostname)", options=["-pe", "mpi", "6"])
    assert job.end() == 0, job.output()
    hosts = ["node1", "node1", "node2", "node2", "node3", "node3"]
    assert tagged(job.output()) == [f"[{rank}]<stdout>:{rank} of 6 on {host}" for rank, host in enumerate(hosts)]
    assert re.search(r"^hvdrun: SGE job \d+: 3 nodes \(node1 to node3\), 6 ranks \(PE_HOSTFILE\)$", job.output(), re.M)


def test_a_rank_s_exit_code_is_the_job_s_and_the_first_failure_is_named(job):
    job.submit("sh", "-c", "[ $RANK = 3 ] || exec sleep 1000; exit 7")
    assert job.end() == 7, job.output()
    first = next(line for line in job.output().splitlines() if re.match(r"hvdrun: rank \d", line))
    assert re.match(r"hvdrun: rank 3 on node2 \(pid \d+\) exited with code 7", first), job.output()


def test_variables_of_any_bytes_and_much_output_come_through(job):
    script = ("import os, sys; assert os.environ['ODD'] == 'a,b=c \\n\\td', os.environ['ODD'];"
              "sys.stdout.write(('x' * 99 + '\\n') * 30000)")
    job.submit("--no-tags", "python3", "-S", "-c", script, before="export ODD='a,b=c \n\td'\n")
    assert job.end() == 0, job.output()[-2000:]
    assert job.output().count("x" * 99 + "\n") == 4 * 30000


def test_ranks_reach_each_other(job):
    job.submit("bench", "allreduce", "-np", "4", "--min", "4", "--max", "64K", "--iters", "3")
    assert job.end() == 0, job.output()


def test_a_parallel_environment_that_starts_nothing_elsewhere_is_said(sge, job):
    sge.run("qconf", "-mattr", "pe", "control_slaves", "FALSE", "mpi")
    try:
        job.submit("true")
        assert job.end() == 241, job.output()
    finally:
        sge.run("qconf", "-mattr", "pe", "control_slaves", "TRUE", "mpi")
    assert re.search(r"^hvdrun: node2: rsh: qrsh .* execution daemon on host \"node2\" didn't accept task$", job.output(), re.M)


def test_a_deleted_job_leaves_nothing(job):
    job.submit("sh", "-c", "trap '' TERM INT HUP USR1 USR2; " + UP)
    job.wait_for("up", 4)
    job.order("qdel")
    job.end()


@pytest.mark.parametrize("command, told", [("qdel", "USR2"), ("qmod -sj", "USR1")])
def test_ranks_of_a_job_with_notify_are_told_first(job, command, told):
    """Grid Engine signals hvdrun and the agents, seconds before it kills or stops them."""
    job.submit("sh", "-c", f"trap 'echo told $RANK; exit 0' {told}; echo up $RANK; while :; do sleep 0.1; done",
               options=["-pe", "mpi", "4", "-notify"])
    job.wait_for("up", 4)
    job.order(*command.split())
    job.end()
    # Grid Engine signals the ranks itself, and the agent does: one of them may be told twice.
    assert set(re.findall(r"told \d", job.output())) == {f"told {rank}" for rank in range(4)}


@pytest.mark.parametrize("victim", ["hvdrun", "qrsh", "agent", "shepherd"])
def test_nothing_is_left_when_one_of_them_is_killed(sge, job, victim):
    job.submit("sh", "-c", UP)
    job.wait_for("up", 4)
    if victim == "shepherd":
        pids = [process.pid for process in sge.lab.ps("node2") if process.args.startswith("sge_shepherd")]
    else:
        pids = job.pids_of({"hvdrun": HVDRUN + " ", "qrsh": "qrsh", "agent": AGENT}[victim])
    os.kill(pids[0], signal.SIGKILL)
    is_ended_here = False
    if victim == "shepherd":
        # Grid Engine usually ends the job. Where it does not, hvdrun reaches the agent again, and the ranks go on.
        try:
            job.qsub.wait(timeout=30)
        except subprocess.TimeoutExpired:
            is_ended_here = True
            for pid in job.pids_of(HVDRUN + " "):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
    job.end()
    # Where qrsh dies, Grid Engine kills the whole job, which qsub calls so; hvdrun's last words may come before that or not.
    if "Unable to run job" not in job.said:
        assert "hvdrun: job failed" in job.output()
    assert is_ended_here or victim in ("hvdrun", "qrsh") or job.said.endswith("exited with exit code 243.\n"), job.said
