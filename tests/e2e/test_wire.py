"""What somebody on the network can read, where he is called, and what he can write: on hosts of the lab.

launcher/docs/security.md has the table of what is refused, noticed or out of scope; each row is tested here, or where the
page's rows on SSH are, in test_ssh_host_keys.py and test_rsh.py.
"""

import contextlib
import ctypes
import os
import re
import secrets
import shutil
import socket
import stat
import struct
import subprocess
import sys
from typing import NamedTuple

import pytest
from hvdrun import BIN, LIBHVD, PYTHON, program, read_until
from patience import PATIENCE

GREETING = b"HVDL\x02\x00"  # how each connection of ours begins: magic and version of the handshake
PROOF_BYTES = 32
SYS_PIDFD_GETFD = 438
TCPI_BYTES_ACKED = 120  # where it is in struct tcp_info
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


# ---- bytes that somebody puts into the links between ranks ----


def tcp_sockets_of(pid):
    """Connections of another process by IP, as sockets of this one; the one that has sent most is the last."""
    pidfd = os.pidfd_open(pid)
    libc = ctypes.CDLL(None, use_errno=True)
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        fd = libc.syscall(SYS_PIDFD_GETFD, pidfd, int(number), 0)
        if fd < 0:
            continue  # closed just now
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.close(fd)
            continue
        each = socket.socket(fileno=fd)
        with contextlib.suppress(OSError):
            if each.family in (socket.AF_INET, socket.AF_INET6) and each.getpeername():
                info = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                found.append((struct.unpack_from("=Q", info, TCPI_BYTES_ACKED)[0], each.fileno(), each))
                continue
        each.close()
    os.close(pidfd)
    return [each for _, _, each in sorted(found, key=lambda one: one[:2])]


def inject(lab2, kind, *flags, count=100_000):
    """What a job of two hosts says when bytes are put into its connection of this kind."""
    job = lab2.popen("env", f"HVD_LIBRARY={LIBHVD}", BIN / "hvdrun", *flags, "--grace", "5", "-np", "2", "-H", "node1,node2",
                     *PYTHON, program("reduces.py"), str(count))
    read_until(job.stdout, "up", 2)
    rank = next(process.pid for process in lab2.ps("node2") if re.search(r"python\S* .*reduces\.py", process.args))
    links = tcp_sockets_of(rank)
    assert len(links) == 3
    try:
        # The least is sent by the connection that such operations leave alone.
        links[1 if kind == "control" else -1].sendall(b"\xff" * 64)
        out, err = job.communicate(timeout=PATIENCE)
    finally:
        for link in links:
            link.close()
    assert job.returncode != 0
    assert "AssertionError" not in out + err  # which a wrong sum would have been
    assert lab2.wait_for_no_processes() == []
    return out + err


@pytest.mark.parametrize("kind, words", [
    ("data", r"the connection from node 1 \(rank 1\) to rank 0 is out of step: .* was to come, and "),
    ("rounds", r"the connection from node 1 \(rank 1\) to rank 0 is out of step: message .* was to come, and "),
    ("control", "not a frame of the control conversation|wrong magic")])
def test_bytes_that_are_put_into_a_link_of_ranks_are_an_error_and_no_wrong_sum(lab2, kind, words):
    out = inject(lab2, kind, count=100 if kind == "rounds" else 100_000)
    assert re.search(words, out), out


# ---- encrypted links between ranks (--secure-links), beside plain ones ----

RELAY_PORT = 7777
ROLES = {"control": 1, "data": 2, "rounds": 6}


@contextlib.contextmanager
def relayed(lab, host, kept, *flips):
    """A relay through which all goes that this host calls others for, but SSH; its lines on standard output."""
    rules = (f"add table ip relay\nadd chain ip relay out {{ type nat hook output priority -100; }}\n"
             f"add rule ip relay out oifname != lo tcp dport 1024-65535 meta mark != 7 redirect to :{RELAY_PORT}\n")
    made = lab.run("nft", "-f", "-", host=host, input=rules)
    if made.returncode != 0:
        pytest.skip(f"connections cannot be redirected here: {made.stderr}")
    relay = lab.popen(*PYTHON, program("relay.py"), RELAY_PORT, kept, *flips, host=host, stdin=subprocess.PIPE)
    try:
        assert relay.stdout.readline() == "listening\n", relay.communicate()
        yield relay
    finally:
        lab.run("nft", "delete", "table", "ip", "relay", host=host)
        relay.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("security", ["plain", "encrypt"])
def test_a_listener_between_hosts_reads_plain_links_and_nothing_of_encrypted_ones(lab2, security):
    mark = "secret-" + secrets.token_hex(8)
    flags = ["--secure-links"] if security == "encrypt" else []
    with captured(lab2, "node1") as streams:
        done = lab2.run("env", f"HVD_LIBRARY={LIBHVD}", BIN / "hvdrun", "-q", "--no-tags", *flags, "-np", 4, "-H",
                        "node1:2,node2:2", sys.executable, program("tells.py"), mark)
    assert (done.returncode, done.stdout) == (0, "moved\n" * 4), done.stderr
    links = ours(streams)
    # Two of rank 0's with the ranks of node2, and one of the leaders; the process set's leaders have their own.
    assert len(links) >= 4
    is_read = [mark.encode() in said for link in links for said in link]
    assert any(is_read) == (security == "plain")
    assert sum(len(said) for link in links for said in link) > 3 * 4096 * len(mark)


@pytest.mark.parametrize("security", ["plain", "encrypt"])
def test_a_relay_between_ranks_reads_as_a_listener_does(lab2, security):
    mark = "secret-" + secrets.token_hex(8)
    kept = lab2.shared / f"relayed-{security}"
    with relayed(lab2, "node2", kept) as relay:
        done = lab2.run("env", f"HVD_LIBRARY={LIBHVD}", f"HVD_LINK_SECURITY={security}", BIN / "hvdrun", "-q", "--no-tags",
                        "-np", 4, "-H", "node1:2,node2:2", sys.executable, program("tells.py"), mark)
        assert (done.returncode, done.stdout) == (0, "moved\n" * 4), done.stderr
        read_until(relay.stdout, "relayed", 2)
    assert (mark.encode() in kept.read_bytes()) == (security == "plain")


@pytest.mark.parametrize("how, count, words", [
    ("length", 100_000, r"frame (\d+) \(\d+ bytes\) of operation 40 was to come, and frame \1 \(\d+ bytes\) of operation 40 has"),
    ("operation", 100_000, r"of operation 40 was to come, and frame \d+ \(\d+ bytes\) of operation 41 has"),
    ("sequence", 100_000, r"frame \d+ \(\d+ bytes\) of operation 40 was to come, and frame \d+ \(\d+ bytes\) of operation 40 has"),
    ("swapped", 100_000, r"frame \d+ \(\d+ bytes\) of operation 40 was to come, and the end of operation 40 has")])
def test_a_frame_that_somebody_between_forges_on_a_plain_link_ends_the_job_and_names_the_link(lab2, how, count, words):
    with relayed(lab2, "node2", lab2.shared / "forged", how) as relay:
        done = lab2.run("env", f"HVD_LIBRARY={LIBHVD}", BIN / "hvdrun", "--grace", "5", "-np", "2", "-H", "node1,node2",
                        *PYTHON, program("reduces.py"), count)
        read_until(relay.stdout, "forged")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert re.search(rf"the connection from node 1 \(rank 1\) to rank 0 is out of step: .*{words}", said), said
    assert "AssertionError" not in said  # which a wrong sum would have been
    assert lab2.wait_for_no_processes() == []


@pytest.mark.parametrize("kind, at, words", [
    ("rounds", 10_003, r"the encrypted connection from node 1 \(rank 1\) to rank 0 was changed on its way: "),
    ("data", 100_003, r"the encrypted connection from node 1 \(rank 1\) to rank 0 was changed on its way: "),
    ("control", 400, r"the encrypted control connection between rank 0 and rank 1 was changed on its way: ")])
def test_a_bit_that_is_flipped_on_an_encrypted_link_ends_the_job_and_names_the_link(lab2, kind, at, words):
    with relayed(lab2, "node2", lab2.shared / "flipped", ROLES[kind], at):
        done = lab2.run("env", f"HVD_LIBRARY={LIBHVD}", BIN / "hvdrun", "--secure-links", "--grace", "5", "-np", "2", "-H",
                        "node1,node2", *PYTHON, program("reduces.py"), 100 if kind == "rounds" else 100_000)
    assert done.returncode != 0
    assert re.search(words, done.stdout + done.stderr), done.stdout + done.stderr
    assert "AssertionError" not in done.stdout + done.stderr  # which a wrong sum would have been
    assert lab2.wait_for_no_processes() == []


@pytest.mark.parametrize("kind, words", [
    ("rounds", r"the encrypted connection from node 1 \(rank 1\) to rank 0 was changed on its way: "),
    ("data", r"the encrypted connection from node 1 \(rank 1\) to rank 0 was changed on its way: "),
    ("control", "the encrypted control connection between rank 0 and rank 1 was changed on its way: ")])
def test_bytes_that_are_put_into_an_encrypted_link_are_an_error_that_names_it(lab2, kind, words):
    out = inject(lab2, kind, "--secure-links", count=100 if kind == "rounds" else 100_000)
    assert re.search(words, out), out


def test_ranks_of_which_one_does_not_encrypt_do_not_start(lab2):
    command = f"[ $RANK = 0 ] || export HVD_LINK_SECURITY=plain; exec {' '.join(PYTHON)} {program('reduces.py')} 100"
    done = lab2.run("env", f"HVD_LIBRARY={LIBHVD}", BIN / "hvdrun", "--secure-links", "-np", 2, "-H", "node1,node2", "sh",
                    "-c", command)
    assert done.returncode != 0
    assert "rank 0 has HVD_LINK_SECURITY=encrypt and rank 1 has not; it must be the same on all ranks" in done.stdout + done.stderr
