"""Jobs of a real Slurm whose time is over, and those whose ranks or nodes are lost: put back into the queue, or going on."""

import os
import re
import signal
import subprocess
import sys
import tempfile

import pytest

import slurm as slurm_support
from hvdrun import BIN, HVDRUN, LIBHVD, PYTHON, ROOT, processes_with, read_until, wait_until_gone
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
    assert text.count(f"saved at {signal_name}") == 2
    assert f"hvdrun got SIG{signal_name}" in text
    assert re.search(rf"Slurm's job {batch.number} is RUNNING, and has \d+:\d\d left", text)
    assert f"Slurm's job {batch.number} goes back into the queue" in text
    # Slurm would wait for two minutes.
    slurm.run("scontrol", "update", f"JobId={batch.number}", "StartTime=now")
    batch.wait_for_state("COMPLETED")
    assert batch.text().count("began anew") == 2


def test_a_job_that_its_user_cancels_does_not_come_back(slurm, batch):
    batch.submit(f"--requeue-on-notice sh {batch.folder}/train.sh", "--requeue")
    batch.wait_for("up", 2)
    batch.scancel()
    batch.wait_for_state("CANCELLED")
    batch.wait_for("does not go back into the queue: Slurm says that it is C")
    assert batch.fact("Restarts") == "0"


def test_a_queue_that_takes_no_job_back_is_told(slurm, batch):
    batch.submit(f"--requeue-on-notice sh {batch.folder}/train.sh", "--no-requeue")
    batch.wait_for("up", 2)
    batch.scancel("-s", "USR1", "-b")
    batch.wait_for(f"Slurm's job {batch.number} cannot go back into the queue: 'scontrol' ")
    batch.wait_for_state("FAILED")
    assert batch.fact("ExitCode") == "138:0"


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
