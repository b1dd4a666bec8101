"""What somebody on the network can read, and where he is called: captures of all packets on a host of the lab."""

import contextlib
import os
import re
import secrets
import shutil
import subprocess
from typing import NamedTuple

import pytest
from hvdrun import BIN, PYTHON, program
from patience import PATIENCE

GREETING = b"HVDL\x02\x00"  # how each connection of ours begins: magic and version of the handshake
PROOF_BYTES = 32
needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")


class Stream(NamedTuple):
    """One direction of a TCP connection."""

    sender: str
    sender_port: int
    receiver: str
    receiver_port: int
    who: str  # "caller": its end has asked for the connection; else "called"
    data: bytes


@contextlib.contextmanager
def captured(lab, host, interface="eth0"):
    """A list that has each Stream of TCP on a host's interface once the block has ended."""
    path = lab.shared / f"capture-{secrets.token_hex(4)}"
    listener = lab.popen(*PYTHON, program("capture.py"), path, interface, host=host, stdin=subprocess.PIPE)
    assert listener.stdout.readline() == "listening\n", listener.communicate()
    streams = []
    try:
        yield streams
    finally:
        _, errors = listener.communicate(timeout=PATIENCE)
    assert listener.returncode == 0, errors
    with path.open("rb") as file:
        for line in file:
            sender, sender_port, receiver, receiver_port, who, size = line.decode().split()
            streams.append(Stream(sender, int(sender_port), receiver, int(receiver_port), who, file.read(int(size))))


def ours(streams):
    """Connections that begin with our handshake: (what the end said that was called, what the caller said)."""
    said = {stream[:4]: stream.data for stream in streams}
    return [(each.data, said.get((each.receiver, each.receiver_port, each.sender, each.sender_port), b""))
            for each in streams if each.who == "called" and each.data.startswith(GREETING)]


@needs_mpirun
def test_a_listener_reads_nothing_of_a_session_under_mpirun(lab2):
    token = "hf_" + secrets.token_hex(16)
    printed = secrets.token_hex(16)
    command = f"echo $HVD_AGENT_TOKEN >{lab2.shared}/token-$RANK; for i in 1 2 3; do echo ${{PRINTED}}; done; cat"
    with captured(lab2, "launcher") as streams:
        done = lab2.run(BIN / "hvdrun", "--mpi", "-q", "--no-tags", "-np", 2, "-H", "node1,node2", "sh", "-c", command,
                        env={**os.environ, "HF_TOKEN": token, "PRINTED": printed}, input="typed-" + printed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(printed) == 7 and "typed-" in done.stdout
    sessions = ours(streams)
    assert len(sessions) == 2 and all(len(called) > 1000 and len(caller) > 300 for called, caller in sessions)
    agent_tokens = [(lab2.shared / f"token-{rank}").read_text().strip() for rank in range(2)]
    assert all(re.fullmatch("[0-9a-f]{32,}", each) for each in agent_tokens)
    for secret in [token, printed, *agent_tokens, "HF_TOKEN", "HVD_AGENT_TOKEN", "HVD_RANK=", "echo $HVD"]:
        forms = (secret.encode(), secret.encode().hex().encode())
        assert not any(form in stream.data for stream in streams for form in forms), secret
    # The capture would have shown them: what mpirun carries itself can be read, as README says.
    assert any(b"HVD_CALL_SECRET=" in stream.data for stream in streams)


def test_a_probe_of_check_carries_nothing_but_its_proof_pings_and_zeros(make_lab):
    token = "hf_" + secrets.token_hex(16)
    lab = make_lab(2, rate="100mbit")  # so that a probe's zeros are few
    with captured(lab, "node1") as streams:
        done = lab.run(BIN / "hvdrun", "check", "-H", "node1,node2", env={**os.environ, "HF_TOKEN": token})
    assert done.returncode == 0, done.stdout + done.stderr
    assert not any(token.encode() in stream.data for stream in streams)
    probes = ours(streams)
    assert len(probes) == 2
    for called, caller in probes:
        # Greeting and proof; claim and words. Each begins with its magic, and the proofs are not to be foretold.
        assert re.fullmatch(rb"(?s)HVDL.{68}.{%d}(hvd-ping)*" % PROOF_BYTES, called), called[:200]
        assert re.match(rb"(?s)HVDL.{112}(hvd-ping)*hvd-data", caller), caller[:200]
        assert not caller[caller.index(b"hvd-data") + 8:].strip(b"\0")


@needs_mpirun
def test_an_agent_does_not_call_an_address_that_its_own_host_has_too(lab2):
    # As docker0 and virbr0 have on every host: who listens there on a node is another user of that node.
    hosts = ("launcher", "node1")
    try:
        for host in hosts:
            made = lab2.run("sh", "-ec", "ip link add both0 type bridge; ip addr add 172.17.0.1/16 dev both0; ip link set both0 up",
                            host=host)
            if made.returncode != 0:
                pytest.skip(f"no bridge can be made here: {made.stderr}")
        with captured(lab2, "node1", "lo") as streams:
            done = lab2.run(BIN / "hvdrun", "--mpi", "-q", "-np", 2, "-H", "node1,node2", "hostname")
        assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:node1", "[1]<stdout>:node2"], done.stderr
        assert not any("172.17.0.1" in (stream.sender, stream.receiver) for stream in streams)
        # A node that is the launcher's own calls these addresses all the same: there they are the launcher's.
        here = lab2.run(BIN / "hvdrun", "--mpi", "-q", "-np", 2, "-H", "launcher,node1", "hostname")
        assert sorted(here.stdout.splitlines()) == ["[0]<stdout>:launcher", "[1]<stdout>:node1"], here.stderr
    finally:
        for host in hosts:
            lab2.run("ip", "link", "del", "both0", host=host)
