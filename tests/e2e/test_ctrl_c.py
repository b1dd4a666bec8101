"""Ctrl-C ends hvdrun while a peer that has not proved itself says nothing, too little, too much, or nonsense.

A row for each such peer: SSH servers, commands of --rsh, agents that are mute after so many bytes, who calls in place of an
agent, who calls at the agent's socket, ranks, and who calls at a probe of `check`. The time from Ctrl-C to the end is printed
(pytest -s); it is no limit here, for a busy machine makes it any.
"""

import os
import pathlib
import re
import shlex
import signal
import socket
import sys
import time

import pytest
from hostile import IGNORES, WORDS, Callers, Server
from hvdrun import HVDRUN, ROOT, env_with, processes_with, read_until, start, wait_until_gone
from lab import wait_until
from patience import PATIENCE

HOSTILE = [sys.executable, "-S", str(ROOT / "tests/support/hostile.py")]
# It would end the wait too, but later than the test.
LONG = ["--start-timeout", 2 * PATIENCE]


def ctrl_c(job, row, codes=(130,)):
    """Interrupts hvdrun, and returns what it said; it must end by that alone."""
    began = time.monotonic()
    job.send_signal(signal.SIGINT)
    out, err = job.communicate(timeout=PATIENCE)
    print(f"{row}: {(time.monotonic() - began) * 1000:.0f} ms")
    assert job.returncode in codes, (row, job.returncode, err)
    return out, err


def ssh_config(tmp_path, port):
    path = tmp_path / "config"
    path.write_text(f"Host far\n HostName 127.0.0.1\n Port {port}\n")
    return path


IDENTIFICATION = b"SSH-2.0-OpenSSH_9.2\r\n"


@pytest.mark.parametrize("first", [b"", IDENTIFICATION], ids=["at once", "after its identification"])
@pytest.mark.parametrize("words", [*WORDS, *IGNORES])
def test_ctrl_c_while_an_ssh_server_has_not_proved_itself(words, first, tmp_path, marker):
    with Server(words, first) as server:
        job = start("--ssh-config", ssh_config(tmp_path, server.port), *LONG, "-np", 1, "-H", "far:1", "true",
                    env=env_with(marker))
        assert server.was_called.wait(PATIENCE)
        # What says too much, or nonsense, is given up by itself: 241, perhaps before the signal.
        is_patient = words in ("one byte a second", "silence")
        _, err = ctrl_c(job, f"ssh, {words}", (130,) if is_patient else (130, 241))
        assert err.count("\n") < 30, err
    assert wait_until_gone(marker) == {}


@pytest.mark.parametrize("announced", [[], ["announced"]], ids=["at once", "after the agent is announced"])
@pytest.mark.parametrize("words", WORDS)
def test_ctrl_c_while_the_command_of_rsh_has_brought_no_agent(words, announced, marker):
    command = shlex.join([*HOSTILE, "talk", words, *announced])
    job = start("--rsh", command, *LONG, "-np", 1, "-H", "far:1", "true", env=env_with(marker))
    wait_until(lambda: job.poll() is not None or any(args.startswith(sys.executable) for args in processes_with(marker).values()),
               "no command")
    is_patient = words in ("one byte a second", "silence")
    _, err = ctrl_c(job, f"rsh, {words}", (130,) if is_patient else (130, 241, 243))
    assert err.count("\n") < 30, err
    assert wait_until_gone(marker) == {}


@pytest.mark.parametrize("count", [0, 1, 11, 12, 40])
def test_ctrl_c_while_an_agent_is_mute_in_the_middle_of_its_first_words(count, marker):
    command = shlex.join([*HOSTILE, "after", str(count)]) + " sh -c 'shift; exec \"$@\"' exec"
    job = start("--verbose", "--rsh", command, *LONG, "-np", 1, "-H", "far:1", "true", env=env_with(marker))
    read_until(job.stderr, "mute after")
    ctrl_c(job, f"agent, mute after {count} bytes")
    assert wait_until_gone(marker) == {}


def test_ctrl_c_while_strangers_call_in_place_of_an_agent(tmp_path, marker):
    called = tmp_path / "called"
    (tmp_path / "mpirun").write_text("#!/bin/sh\n[ \"$1\" != --version ] || { echo 'mpirun (Open MPI) 4.1.4'; exit 0; }\n"
                                     f"echo \"$*\" >{called}.new && mv {called}.new {called}\nexec sleep 1000\n")
    (tmp_path / "mpirun").chmod(0o755)
    job = start("--launcher", "mpi", *LONG, "-np", 1, "true", env=env_with(marker, PATH=f"{tmp_path}:{os.environ['PATH']}"))
    wait_until(called.exists, "mpirun was not called")
    host, port = re.search(r" call mpirun \S+ (127[\d.]+):(\d+)", called.read_text()).groups()
    with Callers(lambda: socket.create_connection((host, int(port)))):
        _, err = ctrl_c(job, "strangers in place of an agent")
    assert err.count("\n") < 30, err
    assert wait_until_gone(marker) == {}


def test_ctrl_c_while_strangers_call_at_the_agents_socket(marker):
    job = start("--no-tags", "-np", 1, "sh", "-c", "echo $HVD_AGENT_SOCKET; exec sleep 1000", env=env_with(marker))
    path = job.stdout.readline().strip()

    def call():
        caller = socket.socket(socket.AF_UNIX)
        caller.connect(path)
        return caller

    with Callers(call):
        ctrl_c(job, "strangers at the agent's socket")
    assert wait_until_gone(marker) == {}


@pytest.mark.parametrize("words", WORDS)
def test_ctrl_c_while_a_rank_talks_nonsense_to_its_agent(words, marker):
    job = start("-np", 2, *HOSTILE, "rank", words, env=env_with(marker))
    read_until(job.stdout, "up", 2)
    ctrl_c(job, f"rank, {words}")
    assert wait_until_gone(marker) == {}


def listeners_of(pid):
    """(address, port) of all that listens for TCP at one address of this process's host."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return []  # it has ended just now
    found = []
    for line in lines:
        address, port = line.split()[1].split(":")
        # SSH listens at any address, and so does a survey for a moment.
        if line.split()[3] == "0A" and int(address, 16) != 0:
            found.append((socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)))
    return found


def test_ctrl_c_while_strangers_call_at_a_probe_of_check(lab2):
    # A probe waits a few seconds for its peer: whoever looks for it and calls is there before.
    hosts = [next(p.pid for p in lab2.ps(host, everything=True)) for host in ("node1", "node2")]
    callers = lab2.popen(*HOSTILE, "call", stdin=-1)
    assert callers.stdout.readline() == "ready\n", callers.communicate()
    lab2.cut("node1", "node2")  # so that the probe waits
    job = lab2.popen(HVDRUN, "check", "--start-timeout", str(PATIENCE), "-H", "node1,node2")
    try:
        address, port = wait_until(lambda: [place for host in hosts for place in listeners_of(host)], "nobody listens")[0]
        callers.stdin.write(f"{address} {port}\n")
        callers.stdin.flush()
        assert callers.stdout.readline() == "called\n", callers.communicate()
        out, _ = ctrl_c(job, "strangers at a probe of check")
        callers.communicate()
    finally:
        lab2.heal()
    assert "interrupted" in out
    assert lab2.wait_for_no_processes() == []
