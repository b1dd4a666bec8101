"""Ctrl-Z: the whole job stops with hvdrun, on whatever host, and goes on with it; and whoever ends it meanwhile ends all."""

import os
import pathlib
import re
import signal
import time

import pytest

from hvdrun import HVDRUN, PYTHON, env_with, guardian_and_agent, read_until, start, wait_until_gone, without_progress
from lab import wait_until
from patience import PATIENCE
from stopped import await_states
from ways import WAYS, way  # noqa: F401  (a fixture)

# A rank: tells its process, and goes when it is let.
WAITS = [*PYTHON, "-uc", "import os, sys, time\nprint('pid', os.getpid())\n"
         "while not os.path.exists(sys.argv[1] + '/go'): time.sleep(0.05)\nprint('went')"]


def begin(way, folder, marker, **options):
    """A job of ranks that wait, and their processes. In a process group of its own, as of a shell with job control: one
    that nobody could continue the kernel would not stop."""
    job = start("-q", *way, *WAITS, folder, env=env_with(marker), **({"process_group": 0} | options))
    lines = read_until(job.stdout, r"pid \d+", 3)
    return job, [int(pid) for pid in re.findall(r"pid (\d+)", "".join(lines))]


def end_well(job, folder, count):
    (folder / "go").touch()
    out, err = job.communicate(timeout=PATIENCE)
    assert (job.returncode, without_progress(err)) == (0, "")
    assert out.count("went") == count


def test_the_ranks_stop_with_hvdrun_and_go_on_with_it(way, tmp_path, marker):
    job, ranks = begin(way, tmp_path, marker)
    for _ in range(2):
        job.send_signal(signal.SIGTSTP)
        await_states([job.pid, *ranks], True)
        job.send_signal(signal.SIGCONT)
        await_states([job.pid, *ranks], False)
    end_well(job, tmp_path, len(ranks))
    assert wait_until_gone(marker) == {}


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGKILL])
def test_a_suspended_job_can_be_ended(way, signo, tmp_path, marker):
    job, ranks = begin(way, tmp_path, marker)
    job.send_signal(signal.SIGTSTP)
    await_states([job.pid, *ranks], True)
    job.send_signal(signo)
    job.send_signal(signal.SIGCONT)
    job.communicate(timeout=PATIENCE)
    assert job.returncode == (-signo if signo == signal.SIGKILL else 128 + signo)
    assert wait_until_gone(marker) == {}


def test_where_nobody_could_continue_it_the_job_goes_on(tmp_path, marker):
    """As after `ssh -t host hvdrun`: the kernel stops no process of an orphaned group."""
    job, ranks = begin(WAYS["local"], tmp_path, marker, process_group=None, start_new_session=True)
    job.send_signal(signal.SIGTSTP)
    end_well(job, tmp_path, len(ranks))


def test_the_time_does_not_count_as_the_jobs(tmp_path, marker):
    job, ranks = begin(["--timeout", "12", *WAYS["local"]], tmp_path, marker)
    job.send_signal(signal.SIGTSTP)
    await_states([job.pid, *ranks], True)
    time.sleep(4)  # sleeps: that this does not count is what is tested
    job.send_signal(signal.SIGCONT)
    _, err = job.communicate(timeout=PATIENCE)
    # It has its twelve seconds all the same, and no more.
    seconds = float(re.search(r"([\d.]+) s\b", err)[1])
    assert job.returncode == 124 and seconds >= 15, err


def test_the_time_does_not_count_as_that_of_the_start(tmp_path, marker):
    slow = f"sh -c 'touch {tmp_path}/asked; sleep 5; shift; exec \"$@\"' exec"
    job = start("-q", "--start-timeout", "8", "--rsh", slow, "-H", "a:3", *WAITS, tmp_path, env=env_with(marker), process_group=0)
    wait_until(lambda: (tmp_path / "asked").exists(), "the host is not asked for")
    job.send_signal(signal.SIGTSTP)
    await_states([job.pid], True)
    time.sleep(10)  # sleeps: that this does not count is what is tested
    job.send_signal(signal.SIGCONT)
    read_until(job.stdout, r"pid \d+", 3)
    end_well(job, tmp_path, 3)


def test_a_job_that_waits_for_its_tasks_or_for_hosts_is_suspended_too(tmp_path, marker):
    gathers = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NUM_NODES": "1", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    (tmp_path / "srun").write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexec sleep 1000\n")
    (tmp_path / "srun").chmod(0o755)
    hosts = tmp_path / "hosts"
    hosts.write_text(f"#!/bin/sh\n[ -e {tmp_path}/failed ] && touch {tmp_path}/asked && exec sleep 1000\necho localhost:1\n")
    hosts.chmod(0o755)
    fails = ["--elastic", "restart", "--host-discovery-script", hosts, "-np", "1", "sh", "-c", f"touch {tmp_path}/failed; exit 3"]
    for words, environment in (["true"], gathers), (fails, {}):
        job = start("-q", *words, env={**env_with(marker), **environment}, process_group=0)
        wait_until(lambda: (tmp_path / "asked").exists(), "it does not wait")
        job.send_signal(signal.SIGTSTP)
        await_states([job.pid], True)
        job.send_signal(signal.SIGCONT)
        await_states([job.pid], False)
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=PATIENCE)
        assert job.returncode == 130
        (tmp_path / "asked").unlink()
    assert wait_until_gone(marker) == {}


def test_an_agent_that_does_not_answer_is_not_waited_for(tmp_path, marker):
    job, ranks = begin(WAYS["local"], tmp_path, marker)
    _, agent = guardian_and_agent(marker)
    os.kill(agent, signal.SIGSTOP)
    await_states([agent], True)
    job.send_signal(signal.SIGTSTP)
    await_states([job.pid], True)
    job.send_signal(signal.SIGCONT)
    os.kill(agent, signal.SIGCONT)
    end_well(job, tmp_path, len(ranks))


def test_ranks_on_other_hosts_stop_and_go_on_too(lab3, tmp_path):
    # Agents would give up a launcher that is silent for a few seconds without a word.
    job = lab3.popen(HVDRUN, "-q", "--heartbeat", "3", "--reconnect-timeout", "0", "-np", "3", "-H", "node1:1,node2:2", *WAITS, tmp_path,
                     process_group=0)  # fmt: skip
    lines = read_until(job.stdout, r"pid \d+", 3)
    hvdrun = lab3.pid_of(job)
    ranks = [process.pid for process in lab3.ps("node1", "node2") if process.args.endswith(str(tmp_path))]
    assert len(ranks) == len(lines)
    os.kill(hvdrun, signal.SIGTSTP)
    await_states([hvdrun, *ranks], True)
    time.sleep(11)  # sleeps: that this silence ends nothing is what is tested
    os.kill(hvdrun, signal.SIGCONT)
    await_states([hvdrun, *ranks], False)
    for node in ("node1", "node2"):
        lab3.run("mkdir", "-p", tmp_path / "go", host=node)
    out, err = job.communicate(timeout=PATIENCE)
    assert (job.returncode, out.count("went")) == (0, 3), err
    assert lab3.wait_for_no_processes() == []
