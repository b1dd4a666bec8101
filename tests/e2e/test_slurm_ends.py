"""Jobs of a real Slurm whose time is over, and those whose ranks or nodes are lost: put back into the queue, or going on."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

import slurm as slurm_support
from hvdrun import BIN, HVDRUN, LIBHVD, ROOT, processes_with, read_until, wait_until_gone
from patience import PATIENCE

pytestmark = pytest.mark.skipif(slurm_support.missing() is not None, reason=slurm_support.missing() or "")
AGENT = str(BIN / "hvdrun-agent")
# It ends in order when it is told to, and says by which signal.
SAVING = """
for name in TERM USR1; do trap "echo saved at $name; exit 0" $name; done
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || { echo began anew; exit 0; }
echo up
while :; do sleep 0.1; done
"""


@pytest.fixture(scope="module")
def slurm():
    with tempfile.TemporaryDirectory(prefix="hvd-slurm-", dir="/tmp") as folder, slurm_support.Slurm(folder) as cluster:
        yield cluster


class Batch:
    """A batch job: its number, and what it has printed."""

    def __init__(self, slurm, folder, environment):
        self.slurm, self.folder, self.environment = slurm, folder, environment
        self.out = folder / "out"
        self.number = None

    def submit(self, words, *options):
        script = self.folder / "job.sh"
        script.write_text(f"#!/bin/sh\nexec {HVDRUN} {words}\n")
        sent = self.slurm.run("sbatch", "--parsable", "-N2", "--open-mode=append", f"--output={self.out}", *options, script,
                              environment=self.environment)
        assert sent.returncode == 0, sent.stderr
        self.number = sent.stdout.strip()
        return self

    def text(self):
        return self.out.read_text() if self.out.exists() else ""

    def wait_for(self, words, count=1):
        self.slurm.wait_for(lambda: self.text().count(words) >= count, f"{words!r} is not in {self.text()!r}")

    def scancel(self, *words):
        assert self.slurm.run("scancel", *words, self.number).returncode == 0

    def fact(self, name):
        said = self.slurm.run("scontrol", "show", "job", self.number).stdout
        found = re.search(rf"\b{name}=(\S+)", said)
        return found and found[1]

    def wait_for_state(self, *states):
        self.slurm.wait_for(lambda: self.fact("JobState") in states, f"the job is not {states}: {self.text()}")


@pytest.fixture
def batch(slurm, marker, tmp_path):
    name, value = marker.split("=")
    script = tmp_path / "train.sh"
    script.write_text(SAVING)
    job = Batch(slurm, tmp_path, {name: value})
    yield job
    slurm.run("scancel", job.number)
    assert not wait_until_gone(marker)


@pytest.mark.parametrize("signal_name", ["USR1", "TERM"])
def test_a_job_whose_time_is_over_saves_its_state_and_begins_anew(slurm, batch, signal_name):
    batch.submit(f"--requeue-on-notice sh {batch.folder}/train.sh", "--requeue", "--time=10")
    batch.wait_for("up", 2)
    batch.scancel("-s", signal_name, "-b")
    batch.wait_for_state("PENDING")
    assert batch.fact("Restarts") == "1"
    text = batch.text()
    assert set(re.findall(rf"^\[(\d)\]<stdout>:saved at {signal_name}$", text, re.M)) == {"0", "1"}, text
    assert f"hvdrun got SIG{signal_name}" in text
    assert re.search(rf"Slurm's job {batch.number} is RUNNING, and has \d+:\d\d left", text)
    assert f"Slurm's job {batch.number} goes back into the queue" in text
    # Slurm would wait for two minutes. It kills a job that starts in the very second in which it has ended.
    slurm.run("scontrol", "update", f"JobId={batch.number}", "StartTime=now+3")
    batch.wait_for_state("COMPLETED")
    assert batch.text().count("began anew") == 2


def test_a_job_that_its_user_cancels_does_not_come_back(slurm, batch):
    batch.submit(f"--requeue-on-notice sh {batch.folder}/train.sh", "--requeue")
    batch.wait_for("up", 2)
    batch.scancel()
    batch.wait_for_state("CANCELLED")
    batch.wait_for(f"hvdrun does not put Slurm's job {batch.number} back into the queue: Slurm says that it is C")
    assert batch.fact("Restarts") == "0"


def test_a_queue_that_takes_no_job_back_is_told(slurm, batch):
    batch.submit(f"--requeue-on-notice sh {batch.folder}/train.sh", "--no-requeue")
    batch.wait_for("up", 2)
    batch.scancel("-s", "USR1", "-b")
    batch.wait_for(f"Slurm's job {batch.number} cannot go back into the queue: 'scontrol' ")
    batch.wait_for_state("FAILED")
    assert batch.fact("ExitCode") == "138:0"


def test_a_missing_scontrol_is_told_and_the_job_ends_with_its_code(slurm, batch):
    programs = batch.folder / "programs"
    programs.mkdir()
    for name in ("sh", "sleep", "srun", "squeue", "sbatch"):
        (programs / name).symlink_to(shutil.which(name))
    batch.environment["PATH"] = str(programs)
    batch.submit(f"--requeue-on-notice sh {batch.folder}/train.sh", "--requeue")
    batch.wait_for("up", 2)
    batch.scancel("-s", "USR1", "-b")
    batch.wait_for_state("FAILED")
    assert batch.fact("ExitCode") == "138:0" and batch.fact("Restarts") == "0"
    (line,) = [line for line in batch.text().splitlines() if "cannot go back into the queue" in line]
    assert "scontrol" in line


def test_without_the_option_a_signal_of_the_user_s_goes_to_the_ranks(slurm, batch):
    """sbatch --signal without B: gives it to the steps' tasks, which are the agents."""
    script = batch.folder / "count.sh"
    script.write_text("trap 'echo heard' USR1\necho up\nwhile [ ! -e $1 ]; do sleep 0.1; done\n")
    batch.submit(f"sh {script} {batch.folder}/go")
    batch.wait_for("up", 2)
    batch.scancel("-s", "USR1")
    slurm.wait_for(lambda: len(set(re.findall(r"^\[(\d)\]<stdout>:heard", batch.text(), re.M))) == 2, batch.text())
    (batch.folder / "go").touch()
    batch.wait_for_state("COMPLETED")


def test_the_option_is_for_a_job_of_slurm_s(slurm):
    done = slurm.run(HVDRUN, "--requeue-on-notice", "true")
    assert done.returncode == 240
    assert done.stderr.startswith("hvdrun: --requeue-on-notice is for a batch job of Slurm") and done.stderr.count("\n") == 1
    plan = slurm.run(HVDRUN, "plan", "--engine", "slurm", "--requeue-on-notice", "true").stdout
    assert "#SBATCH --requeue\n" in plan and "#SBATCH --no-kill\n" not in plan
    assert plan.splitlines()[-1].endswith("--requeue-on-notice true")


def salloc(slurm, marker, *words):
    """The caller names its nodes, because Slurm gives others while it clears some up after the job before."""
    name, value = marker.split("=")
    return subprocess.Popen(["salloc", "-Q", "--no-kill", *map(str, words)], env={**slurm.environment, name: value},
                            stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def kill_agent(marker, node, signo=signal.SIGKILL):
    """Of its two processes, which srun's step has as its task and the child of that."""
    pids = [pid for pid, words in processes_with(marker).items() if words.startswith(AGENT + " call")
            and f"SLURMD_NODENAME={node}\0".encode() in open(f"/proc/{pid}/environ", "rb").read()]
    assert len(pids) == 2
    for pid in sorted(pids, reverse=True) if signo == signal.SIGKILL else pids[:1]:
        with contextlib.suppress(ProcessLookupError):  # the first has ended when it saw that its child had
            os.kill(pid, signo)


LOST = "(node n2 was lost|the agent on n2 ends)"
SAYS = "echo start $TORCHELASTIC_RESTART_COUNT rank $RANK of $WORLD_SIZE on $HOROVOD_HOSTNAME; "


def test_all_ranks_start_anew_when_one_fails(slurm, marker):
    job = salloc(slurm, marker, "-N2", "-w", "n1,n2", HVDRUN, "-np", 4, "--elastic", "restart", "sh", "-c",
                 SAYS + "test $TORCHELASTIC_RESTART_COUNT = 1 || { test $RANK = 3 && exit 3; sleep 1000; }")
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, err
    assert len(re.findall(r"start 1 rank \d of 4 on n[12]\n", out)) == 4, out
    assert "all ranks are started again (restart 1 of 10): rank 3 on n2" in err
    assert not wait_until_gone(marker)


def test_a_new_start_does_without_a_node_whose_agent_is_gone(slurm, marker, tmp_path):
    job = salloc(slurm, marker, "-N3", "-w", "n1,n2,n3", HVDRUN, "-np", 3, "--min-np", 2, "--elastic", "restart",
                 "--reconnect-timeout", 1, "sh", "-c", SAYS + f"until test -e {tmp_path}/go; do sleep 0.1; done")
    read_until(job.stdout, "start 0", 3)
    kill_agent(marker, "n2")
    lines = "".join(read_until(job.stdout, r"start 1 rank \d of 2", 2))
    assert "on n1\n" in lines and "on n3\n" in lines
    (tmp_path / "go").touch()
    _, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, err
    assert re.search(f"all ranks are started again \\(restart 1 of 10\\): {LOST}", err), err
    assert not wait_until_gone(marker)


@pytest.mark.parametrize("signo, words", [(signal.SIGKILL, LOST), (signal.SIGTERM, "n2: its agent leaves")])
def test_the_others_go_on_without_a_node_that_is_lost_or_leaves(slurm, marker, tmp_path, signo, words):
    job = salloc(slurm, marker, "-N3", "-w", "n1,n2,n3", HVDRUN, "-np", 3, "--min-np", 2, "--reconnect-timeout", 1, "-x",
                 f"PYTHONPATH={ROOT / 'runtime/python'}", "-x", f"HVD_LIBRARY={LIBHVD}", sys.executable,
                 ROOT / "tests/support/offered_steps.py", 1, tmp_path / "go")
    read_until(job.stdout, "size 3 rank", 3)
    kill_agent(marker, "n2", signo)
    read_until(job.stdout, "size 2 rank", 2)
    (tmp_path / "go").touch()
    _, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, err
    assert re.search(words, err), err
    assert not wait_until_gone(marker)


@pytest.fixture
def small():
    """A cluster of its own, for who breaks it."""
    with tempfile.TemporaryDirectory(prefix="hvd-slurm-", dir="/tmp") as folder, slurm_support.Slurm(folder, 3) as cluster:
        yield cluster


def test_a_killed_slurmd_does_not_end_the_job_nor_hang_its_end(small, marker, tmp_path):
    job = salloc(small, marker, "-N2", "-w", "n1,n2", HVDRUN, "sh", "-c",
                 f"echo up; until [ -e {tmp_path}/go ]; do sleep 0.1; done; [ $RANK = 0 ] || exit 7; sleep 1000")
    read_until(job.stdout, "up", 2)
    small.slurmd("n2").kill()
    (tmp_path / "go").touch()
    _, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 7, err
    assert re.search(r"rank 1 on n2 \(pid \d+\) exited with code 7", err), err
    assert not wait_until_gone(marker)
