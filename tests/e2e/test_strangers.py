"""Strangers at what a running job listens on: they are dropped, and the job does not notice."""

import os
import pathlib
import re
import secrets
import signal
import socket
import struct
import time

import pytest
from agent import HEADER, HELLO, MAGIC, VERSION, frame, text
from hvdrun import LIBHVD, PYTHON, processes_with, program, read_until, start, wait_until_gone
from patience import PATIENCE

WRONG_TOKEN = frame(HELLO, text(b"0" * 32) + struct.pack("<i", 0))

# What each of them says; nothing: it is only there.
STRANGERS = {
    "half-open": b"",
    "one byte": b"\x48",
    "garbage": secrets.token_bytes(65536),
    "web browser": b"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n",
    "wrong magic": HEADER.pack(MAGIC ^ 1, VERSION, HELLO, 4) + b"1234",
    "wrong version": HEADER.pack(MAGIC, VERSION + 1, HELLO, 4) + b"1234",
    "too long": HEADER.pack(MAGIC, VERSION, HELLO, 0xFFFFFFFF),
    "cut off": WRONG_TOKEN[: len(WRONG_TOKEN) // 2],
    "wrong token": WRONG_TOKEN,
    "no rank": frame(HELLO, text(b"0" * 32) + struct.pack("<i", -5)),
}


def variable_of(pid, name):
    for entry in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        key, _, value = entry.partition(b"=")
        if key.decode() == name:
            return value.decode()
    return None


def sockets_of(pid):
    names = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            names.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass  # closed just now
    return {int(found[1]) for name in names if (found := re.match(r"socket:\[(\d+)\]", name))}


def tcp_listeners():
    """Inodes of all sockets that listen for TCP connections."""
    lines = [line.split() for family in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{family}").read_text().splitlines()[1:]]
    return {int(line[9]) for line in lines if line[3] == "0A"}


@pytest.fixture
def job():
    marker = f"HVD_TEST_MARK=strangers-{secrets.token_hex(6)}"
    name, value = marker.split("=")
    job = start("-np", 2, "-x", f"HVD_LIBRARY={LIBHVD}", "-x", marker, *PYTHON, program("busy.py"), env={**os.environ, name: value})
    read_until(job.stdout, r"step 3$", 2)
    yield job, marker
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=PATIENCE)
    assert job.returncode == 143
    assert wait_until_gone(marker) == {}


def test_a_running_job_listens_for_nobody_from_outside(job):
    _, marker = job
    listening = tcp_listeners()
    assert {pid: command for pid, command in processes_with(marker).items() if sockets_of(pid) & listening} == {}


def test_strangers_at_the_agents_socket_are_dropped_and_the_job_goes_on(job):
    job, marker = job
    ranks = [pid for pid in processes_with(marker) if variable_of(pid, "HVD_AGENT_SOCKET")]
    path = variable_of(ranks[0], "HVD_AGENT_SOCKET")
    assert pathlib.Path(path).parent.stat().st_mode & 0o077 == 0, "nobody else comes that far"
    before = {pid: len(sockets_of(pid)) for pid in processes_with(marker)}
    callers = []
    for said in [said for said in STRANGERS.values() for _ in range(10)]:
        caller = socket.socket(socket.AF_UNIX)
        caller.connect(path)
        try:
            caller.sendall(said)
        except (BrokenPipeError, ConnectionResetError):
            pass  # dropped before it had said all
        callers.append(caller)
    read_until(job.stdout, r"step \d+$", 20)
    # A slow one: a byte now and then until it is dropped, whatever it does.
    deadline = time.monotonic() + PATIENCE
    left = callers
    while left and time.monotonic() < deadline:
        still = []
        for caller in left:
            caller.setblocking(False)
            try:
                caller.send(b"\0")
                if caller.recv(1) != b"":
                    raise AssertionError("a stranger got an answer")
            except BlockingIOError:
                still.append(caller)
            except OSError:
                pass
        left = still
        read_until(job.stdout, r"step \d+$", 2)
    assert not left, "each was dropped in the end"
    while (now := {pid: len(sockets_of(pid)) for pid in before}) != before and time.monotonic() < deadline:
        read_until(job.stdout, r"step \d+$", 2)
    assert now == before, "no socket is left behind"
    read_until(job.stdout, r"step \d+$", 20)
    assert job.poll() is None
