"""What a job of Slurm's has on its nodes, GPUs, CPUs and memory, reaches the ranks; where it does not, the user is told."""

import contextlib
import os
import pty
import select
import subprocess
import tempfile

import pytest

import slurm as slurm_support
from hvdrun import HVDRUN, wait_until_gone
from patience import PATIENCE

pytestmark = pytest.mark.skipif(slurm_support.missing() is not None, reason=slurm_support.missing() or "")
SHOW = ["sh", "-c", "echo $RANK $HOROVOD_HOSTNAME $CUDA_VISIBLE_DEVICES"]
MEMORY = {"SelectTypeParameters": "CR_Core_Memory", "DefMemPerCPU": 200, "JobAcctGatherType": "jobacct_gather/linux",
          "JobAcctGatherFrequency": 1, "JobAcctGatherParams": "OverMemoryKill"}


@pytest.fixture(scope="module")
def slurm():
    with tempfile.TemporaryDirectory(prefix="hvd-slurm-", dir="/tmp") as folder:
        with slurm_support.Slurm(folder, nodes=2, gpus=2, settings=MEMORY) as cluster:
            yield cluster


@pytest.fixture
def job(slurm, marker):
    name, value = marker.split("=")

    def run(salloc, *words):
        return slurm.run("salloc", "-Q", "--immediate=600", *salloc, *words, environment={name: value})

    yield run
    assert not wait_until_gone(marker)


def places(done):
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


EACH_GPU = ["0 n1 0,1", "1 n1 0,1", "2 n2 0,1", "3 n2 0,1"]


@pytest.mark.parametrize("salloc", [
    ["-N2", "--gpus-per-node=2"],
    ["-N2", "--gpus-per-node=2", "--exclusive"],  # where Slurm counts a node's CPUs as its tasks
    ["-N2", "-n4", "--gpus-per-task=1"],
    ["-N2", "--gpus-per-node=2", "--ntasks-per-gpu=1"],
])
def test_a_rank_for_each_gpu_however_slurm_was_asked_for_them(job, salloc):
    done = job(salloc, HVDRUN, "--no-tags", *SHOW)
    assert places(done) == EACH_GPU
    assert "GPUs; " not in done.stderr


def test_gpus_that_slurm_does_not_give_its_step_are_told(job):
    """Slurm 22.05 gives a step of one task a node three of the four."""
    done = job(["-N2", "--gpus=4"], HVDRUN, "--no-tags", *SHOW)
    seen = len(places(done))
    told = f"hvdrun: Slurm gives the ranks {seen} of the job's 4 GPUs; it gives all where the job asks for them by --gpus-per-node\n"
    assert (told in done.stderr) == (seen < 4), done.stderr


@pytest.mark.parametrize("variable", ["SLURM_NTASKS_PER_GPU=1", "SRUN_CPUS_PER_TASK=1", "SLURM_EXCLUSIVE=1",
                                      "SLURM_THREADS_PER_CORE=1"])
def test_options_that_the_user_s_own_srun_would_get_are_not_the_agents(job, variable):
    done = job(["-N2", "--ntasks-per-node=2"], "env", variable, HVDRUN, "--no-tags", "sh", "-c",
               "scontrol show step $SLURM_JOB_ID.0 | grep -o ' CPUs=[0-9]*'")
    assert places(done) == [" CPUs=4"] * 4


def test_a_step_that_takes_too_much_memory_is_told_in_slurm_s_words(job):
    grow = "import os, time\nif os.environ['RANK'] == '1':\n    kept = b'x' * 600_000_000\ntime.sleep(1000)"
    done = job(["-N2", "--mem=200"], HVDRUN, "/usr/bin/python3", "-c", grow)
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert last.startswith("hvdrun: Slurm's job ") and "exceeded memory limit" in last, done.stderr
    assert last.endswith("; ask Slurm for more memory, as in --mem=64G")


def test_more_ranks_than_slurm_s_tasks_are_refused_with_what_to_ask_for(job):
    done = job(["-N2", "--ntasks-per-node=2"], HVDRUN, "-np", 8, "true")
    assert done.returncode == 240
    assert done.stderr == ("hvdrun: 8 ranks asked for (-np), but Slurm's job has 4 slots (SLURM_NTASKS_PER_NODE); "
                           "ask Slurm for more, or hvdrun for fewer\n")


def test_hvdrun_runs_in_the_shell_of_srun_pty(slurm, marker):
    name, value = marker.split("=")
    own, shell_s = pty.openpty()
    running = subprocess.Popen(["srun", "-N2", "--pty", "sh"], env={**slurm.environment, name: value}, stdin=shell_s,
                               stdout=shell_s, stderr=shell_s, start_new_session=True)
    os.close(shell_s)
    os.write(own, f"{HVDRUN} --no-tags sh -c 'echo rank $RANK on $HOROVOD_HOSTNAME'; exit\n".encode())
    with open(own, "rb", buffering=0) as terminal:
        out = b""
        with contextlib.suppress(OSError):  # the shell and srun have closed it
            while select.select([terminal], [], [], PATIENCE)[0]:
                out += terminal.read(4096)
    assert running.wait(PATIENCE) == 0, out
    assert b"rank 0 on n1" in out and b"rank 1 on n2" in out
    assert not wait_until_gone(marker)
