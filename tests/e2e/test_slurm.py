"""hvdrun within a job of a real Slurm of four nodes: the same promises as over SSH."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

import slurm as slurm_support
from hvdrun import BIN, HVDRUN, LIBHVD, PYTHON, ROOT, processes_with, read_until, wait_until_gone
from patience import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(slurm_support.missing() is not None, reason=slurm_support.missing() or "")
AGENT = str(BIN / "hvdrun-agent")


@pytest.fixture(scope="module")
def slurm():
    with tempfile.TemporaryDirectory(prefix="hvd-slurm-", dir="/tmp") as folder, slurm_support.Slurm(folder) as cluster:
        yield cluster


@pytest.fixture
def job(slurm, marker):
    """Runs hvdrun within an allocation: job(["-N2"], "-np", 4, ...). All its processes hold the marker."""
    name, value = marker.split("=")

    def run(salloc, *words, **options):
        return slurm.run("salloc", "-Q", "--immediate=600", *salloc, HVDRUN, *words, environment={name: value}, **options)

    yield run
    assert not wait_until_gone(marker)


def own_words(done):
    return [line for line in done.stderr.splitlines() if line.startswith("hvdrun: ")]


def test_the_job_s_nodes_are_used_without_a_word_from_the_user(job):
    done = job(["-N4"], "sh", "-c", "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $HOROVOD_HOSTNAME")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{n}]<stdout>:{n} of 4, 0 of 1 on n{n + 1}" for n in range(4)]
    assert re.search(r"^hvdrun: Slurm's job \d+: 4 nodes \(n1 to n4\)", done.stderr)


@pytest.mark.parametrize("salloc, words, placed", [
    (["-N2", "--ntasks-per-node=2"], [], "n1 n1 n2 n2"),
    (["-N2"], ["-np", 3], "n1 n1 n2"),
    (["-N4"], ["-np", 2], "n1 n2"),
    (["-N2", "-n3"], [], "n1 n1 n2"),
])
def test_slots_are_slurm_s_or_spread(job, salloc, words, placed):
    done = job(salloc, "--no-tags", *words, "sh", "-c", "echo $RANK $HOROVOD_HOSTNAME")
    assert done.returncode == 0, done.stderr
    hosts = [line.split()[1] for line in sorted(done.stdout.splitlines())]
    # Slurm may still be clearing n1 and n2 up after the job before, and then gives others.
    known = {host: f"n{number}" for number, host in enumerate(sorted(set(hosts)), 1)}
    assert " ".join(known[host] for host in hosts) == placed


def test_a_job_file_takes_the_job_s_nodes_when_it_is_told_to(job, tmp_path):
    file = tmp_path / "two.yaml"
    file.write_text("nodeCount: 2\nprocessCount: 4\ncommand: echo $RANK\n")
    done = job(["-N2"], "--engine", "slurm", "-f", file)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 4, done.stderr
    told = [line for line in own_words(done) if line.startswith("hvdrun: Slurm's job")]
    assert len(told) == 1 and told[0].endswith(f"), 4 ranks ({file})"), told
    done = job(["-N2"], "-f", file)
    assert done.returncode == 240 and done.stderr.endswith("; in this job of Slurm --engine slurm takes its hosts\n"), done.stderr


def test_ranks_see_the_job_but_no_seat_of_slurm_s(job):
    done = job(["-N2"], "--no-tags", "--launcher", "slurm", "sh", "-c",
               "test $SLURMD_NODENAME = $HOROVOD_HOSTNAME && env | sed -n 's/^\\(SLURM[A-Z_]*\\)=.*/\\1/p'")
    assert done.returncode == 0, done.stderr
    seen = set(done.stdout.split())
    assert "SLURM_JOB_ID" in seen
    assert not seen & {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_ID"}


KEY = r"\b[0-9a-f]{64,}\b"  # and other things, which may stand in the environment of a test


def test_no_command_line_and_no_environment_has_the_key(slurm, job, marker):
    done = job(["-N2"], "sh", "-c", "tr '\\0' '\\n' </proc/$PPID/environ; tr '\\0' ' ' </proc/$PPID/cmdline")
    assert done.returncode == 0, done.stderr
    assert "hvdrun-agent call slurm" in done.stdout
    assert not set(re.findall(KEY, done.stdout)) - set(re.findall(KEY, "\n".join(os.environ.values()))), done.stdout


def test_hosts_of_the_user_and_launcher_ssh_win(job):
    for words in (["-H", "localhost:2"], ["--launcher", "ssh", "-np", 2]):
        done = job(["-N2"], *words, "sh", "-c", "echo $HOROVOD_HOSTNAME")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(":localhost\n") == 2
        assert "Slurm" not in done.stderr


@pytest.mark.parametrize("end, code, words", [
    ("exit 7", 7, "exited with code 7"),
    ("ulimit -c 0; kill -SEGV $$", 139, "SIGSEGV"),
    ("kill -KILL $$", 137, "SIGKILL"),
])
def test_the_first_failure_is_named_and_its_code_is_the_job_s(job, end, code, words):
    done = job(["-N4"], "-np", 8, "sh", "-c", f"[ $RANK = 5 ] || exec sleep 1000; {end}")
    assert done.returncode == code, done.stderr
    first = next(line for line in own_words(done) if "rank" in line and "ranks" not in line)
    assert first.startswith("hvdrun: rank 5 on n3") and words in first


def test_a_rank_that_fails_is_started_again_on_its_node(job, tmp_path):
    script = (f"import os, pathlib, sys; sys.path.insert(0, {str(ROOT / 'runtime/python')!r})\n"
              "from horovod.common import basics\n"
              f"flag = pathlib.Path({str(tmp_path / 'raised')!r})\n"
              "basics.init()\n"
              "if not flag.exists():\n"
              "    flag.touch()\n"
              "    raise ValueError('once')\n"
              "print('ends on', os.environ['HOROVOD_HOSTNAME'], flush=True)\n")
    done = job(["-N1", "-w", "n1"], "--launcher", "slurm", "-np", 1, "--elastic-restarts", 1, "-x", f"HVD_LIBRARY={LIBHVD}", *PYTHON,
               "-c", script)
    assert done.returncode == 0, done.stderr
    assert "it is started again (restart 1 of 1)" in done.stderr
    assert "ends on n1" in done.stdout


def test_whole_lines_come_from_all_nodes_at_once(job):
    done = job(["-N4"], "-np", 8, "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo line $RANK $i; done")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"[{rank}]<stdout>:line {rank} {i}" for rank in range(8)
                                                      for i in range(1, 9))


def test_ranks_reach_each_other(job):
    done = job(["-N2"], "bench", "allreduce", "-np", 4, "--min", "4", "--max", "64K", "--iters", "3")
    assert done.returncode == 0, done.stderr


def test_a_step_that_runs_on_the_nodes_does_not_keep_it_waiting(slurm, job):
    script = f"srun --overlap -N2 -n2 sleep 1000 & {HVDRUN} true; code=$?; kill -INT %1; kill -INT %1; kill %1; exit $code"
    done = slurm.run("salloc", "-Q", "-N2", "bash", "-c", script)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("victim", ["hvdrun", "srun", "agent"])
def test_nothing_is_left_when_one_of_them_is_killed(slurm, marker, victim):
    name, value = marker.split("=")
    running = subprocess.Popen(["salloc", "-Q", "-N2", HVDRUN, "-np", "4", "sh", "-c", "echo up; exec sleep 1000"],
                               env={**slurm.environment, name: value}, stdin=subprocess.DEVNULL, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    read_until(running.stdout, "up")
    found = {"hvdrun": HVDRUN + " -np", "srun": "^(/usr/bin/)?srun ", "agent": AGENT + " call"}[victim]
    pids = [pid for pid, words in processes_with(marker).items() if re.search(found, words)]
    assert pids
    os.kill(pids[0], signal.SIGKILL)
    try:
        out, err = running.communicate(timeout=PATIENCE) if victim != "hvdrun" else ("", "")
        if victim != "hvdrun":
            assert running.returncode != 0, err
            assert "hvdrun: job failed" in err
    finally:
        slurm.run("scancel", "--user=root")
        running.kill()
        running.wait()
    assert not wait_until_gone(marker)


def test_a_killed_slurmstepd_does_not_end_the_job_nor_hang_its_end(slurm, marker, tmp_path):
    name, value = marker.split("=")
    running = subprocess.Popen(
        ["salloc", "-Q", "-N2", HVDRUN, "sh", "-c",
         f"echo up; until [ -e {tmp_path}/go ]; do sleep 0.1; done; [ $RANK = 0 ] || exit 7; sleep 1000"],
        env={**slurm.environment, name: value}, stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)
    read_until(running.stdout, "up", 2)
    killed = stepds(slurm)
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 7, err
    assert not wait_until_gone(marker)


def stepds(slurm):
    """The slurmstepds of this cluster's steps: {pid: command line}."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if words.startswith("slurmstepd: [") and str(slurm.folder).encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = words
            except OSError:
                pass
    return found


def test_ctrl_c_gives_the_ranks_their_grace(slurm, marker):
    name, value = marker.split("=")
    running = subprocess.Popen(
        ["salloc", "-Q", "-N2", HVDRUN, "sh", "-c", "trap 'echo bye; exit 0' TERM INT; echo up; while :; do sleep 0.1; done"],
        env={**slurm.environment, name: value}, stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)
    read_until(running.stdout, "up", 2)
    pid = next(pid for pid, words in processes_with(marker).items() if words.startswith(HVDRUN + " "))  # not its agents
    os.kill(pid, signal.SIGINT)
    out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130, err
    # A shell that is told twice may say it twice.
    assert set(re.findall(r"^\[(\d)\]<stdout>:bye$", out, re.M)) == {"0", "1"}, out
    assert not wait_until_gone(marker)


def test_a_cancelled_job_ends_and_its_ranks_are_told(slurm, marker, tmp_path):
    name, value = marker.split("=")
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\nexec {HVDRUN} sh -c 'trap \"echo told \\$RANK >>{tmp_path}/told; exit 0\" TERM; "
                      f"echo up >>{tmp_path}/up; while :; do sleep 0.1; done'\n")
    sent = slurm.run("sbatch", "--parsable", "-N2", f"--output={tmp_path}/out", script, environment={name: value})
    assert sent.returncode == 0, sent.stderr
    wait_until(lambda: (tmp_path / "up").exists() and (tmp_path / "up").read_text().count("up") == 2)
    slurm.run("scancel", sent.stdout.strip())
    assert not wait_until_gone(marker)
    # Slurm signals the ranks itself, and the agent does: one of them may be told twice.
    assert set((tmp_path / "told").read_text().splitlines()) == {"told 0", "told 1"}
    out = (tmp_path / "out").read_text()
    last = next(line for line in reversed(out.splitlines()) if line.startswith("hvdrun: "))
    assert last.startswith(f"hvdrun: Slurm's job {sent.stdout.strip()}: "), out
    assert " CANCELLED AT " in last or ": its processes were told to end" in last, out
    assert last.endswith("; scontrol show job says more")


def test_a_batch_script_s_output_is_the_ranks(slurm, marker, tmp_path):
    name, value = marker.split("=")
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=2\nexec {HVDRUN} sh -c 'echo rank $RANK'\n")
    done = slurm.run("sbatch", "--wait", f"--output={tmp_path}/out", script, environment={name: value})
    out = (tmp_path / "out").read_text()
    assert done.returncode == 0, out
    assert sorted(re.findall(r"rank \d", out)) == [f"rank {n}" for n in range(8)]
    assert not wait_until_gone(marker)


@pytest.mark.parametrize("variables, words, code", [
    ({"SLURM_JOB_ID": "9"}, "SLURM_JOB_NODELIST, which names its nodes, is not set", 240),
    ({"SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "n[1-"}, "SLURM_JOB_NODELIST is 'n[1-'", 240),
    ({"SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "3"}, "SLURM_JOB_NUM_NODES says 3", 240),
    ({"SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "n1", "SLURM_HET_SIZE": "2"}, "heterogeneous", 240),
    ({"SLURM_JOB_ID": "99999", "SLURM_JOB_NODELIST": "n[1-2]"}, "stale environment; use a new shell, or --engine none", 240),
])
def test_a_half_known_job_is_refused_in_one_line(slurm, variables, words, code):
    done = slurm.run(HVDRUN, "-q", "true", environment=variables)
    assert len(done.stderr.splitlines()) == 1
    assert done.returncode == code, done.stderr
    assert sum(words in line for line in done.stderr.splitlines()) == 1, done.stderr
    assert done.stdout == ""


def test_a_missing_srun_and_a_job_that_is_none_are_said(slurm):
    done = slurm.run(HVDRUN, "true", environment={"SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "n[1-2]", "PATH": "/nowhere"})
    assert done.returncode != 0 and "srun" in done.stderr and len(own_words(done)) <= 2
    done = slurm.run(HVDRUN, "--launcher", "slurm", "true")
    assert done.returncode == 240 and "salloc" in done.stderr


@pytest.mark.parametrize("spoil, words", [
    ("rm -f", "hvdrun-agent must be at the same path on every node"),
    ("chmod -x", "hvdrun-agent must be executable on every node"),
])
def test_an_agent_that_no_node_can_run_is_said(slurm, tmp_path, spoil, words):
    shutil.copy(HVDRUN, tmp_path / "hvdrun")
    shutil.copy(AGENT, tmp_path / "hvdrun-agent")
    script = f"{tmp_path}/hvdrun --start-timeout {PATIENCE} true"
    # The agent is spoilt between hvdrun's look and srun's.
    (tmp_path / "srun").write_text(f"#!/bin/sh\n{spoil} {tmp_path}/hvdrun-agent\nexec /usr/bin/srun \"$@\"\n")
    (tmp_path / "srun").chmod(0o755)
    done = slurm.run("salloc", "-Q", "-N2", "sh", "-c", script,
                     environment={"PATH": f"{tmp_path}:{slurm.environment['PATH']}"})
    assert done.returncode == 242
    assert sum(words in line for line in done.stderr.splitlines()) == 1, done.stderr


def test_a_second_job_of_slurm_s_joins_a_running_one(slurm, tmp_path, marker):
    """Each task of its step is an agent. All nodes of this Slurm are one machine."""
    name, value = marker.split("=")
    environment = {**slurm.environment, name: value}
    file, gate = tmp_path / "join", tmp_path / "gate"
    script = str(ROOT / "tests/support/offered_steps.py")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    first = subprocess.Popen(["salloc", "-Q", "-N1", HVDRUN, "--join-file", file, "-np", "1", sys.executable,
                              script, "1", gate], **pipes)  # fmt: skip
    read_until(first.stdout, "size 1 rank", 1)
    second = subprocess.Popen(["salloc", "-Q", "-N2", "srun", "-n2", HVDRUN, "join", file], **pipes)
    read_until(first.stdout, "size 3 rank", 3)
    gate.write_text("")
    _, err = first.communicate(timeout=PATIENCE)
    assert first.returncode == 0, err
    _, err = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, err
    assert not wait_until_gone(marker)
