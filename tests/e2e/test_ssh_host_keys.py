"""Host keys and algorithms over real SSH: hvdrun goes where `ssh` goes, and nowhere else."""

import contextlib

import pytest

from hvdrun import HVDRUN, has_libssh2, read_until
from patience import PATIENCE

KEX = "sntrup761x25519-sha512@openssh.com"  # ssh knows it, libssh2 does not


@contextlib.contextmanager
def second_sshd(lab, *options):
    """Another sshd on node1, at port 2222, with the host key of the first."""
    words = [word for option in options for word in ("-o", option)]
    sshd = lab.popen("sh", "-c", 'PATH=$PATH:/usr/sbin:/sbin; exec "$(command -v sshd)" -D -e -f /run/sshd/config "$@"',
                     "sh", "-p", "2222", *words, host="node1")
    try:
        read_until(sshd.stderr, "listening")
        yield
    finally:
        sshd.terminate()
        sshd.communicate(timeout=PATIENCE)


@contextlib.contextmanager
def user_files(lab, known_hosts=None, config=""):
    """~/.ssh of the launcher with this known_hosts, and with these lines before its config."""
    lab.run("sh", "-c", "cp -a ~/.ssh ~/.kept", check=True)
    try:
        if known_hosts is not None:
            lab.run("sh", "-c", "cat >~/.ssh/known_hosts", input=known_hosts, check=True)
        lab.run("sh", "-c", "cat - ~/.kept/config >~/.ssh/config", input=config, check=True)
        yield
    finally:
        lab.run("sh", "-c", "rm -r ~/.ssh && mv ~/.kept ~/.ssh", check=True)


def run_there(lab, *options):
    return lab.run(HVDRUN, "-np", "1", "-p", "2222", *options, "-H", "node1:1", "echo", "there")


def assert_runs(lab, *options):
    done = run_there(lab, *options)
    assert done.returncode == 0, done.stderr
    assert "there" in done.stdout
    return done.stderr


def host_key(lab, node="node1"):
    """A node's, as known_hosts has it, without the names before it."""
    lines = lab.run("sh", "-c", "cat ~/.ssh/known_hosts", check=True).stdout.splitlines()
    return next(line for line in lines if line.startswith(f"{node},")).split(" ", 1)[1]


def test_a_host_known_without_its_port_is_known(lab3):
    with second_sshd(lab3):
        assert "system's ssh" not in assert_runs(lab3) or not has_libssh2()
        with user_files(lab3, f"node1 {host_key(lab3)}\n[node1]:2222 {host_key(lab3, 'node2')}\n"):
            done = run_there(lab3)
    assert done.returncode == 241
    assert "CHANGED" in done.stderr or "verification failed" in done.stderr, done.stderr
    assert lab3.wait_for_no_processes() == []


def test_a_hardened_server_is_reached_as_by_ssh(lab3):
    if KEX not in lab3.run("ssh", "-Q", "kex").stdout:
        pytest.skip(f"ssh does not know {KEX}")
    with second_sshd(lab3, f"KexAlgorithms={KEX}"):
        said = assert_runs(lab3)
        assert "shares no algorithm with the server" in said or not has_libssh2(), said
    assert lab3.wait_for_no_processes() == []


def test_a_host_with_a_certificate_is_checked_as_by_ssh(lab3):
    make = ("set -e; rm -f /tmp/ca /tmp/ca.pub; ssh-keygen -q -t ed25519 -N '' -f /tmp/ca; "
            "ssh-keygen -y -f /run/sshd/host_key >/tmp/host.pub; "
            "ssh-keygen -q -s /tmp/ca -I node1 -h -n node1 /tmp/host.pub; cat /tmp/ca.pub")
    authority = lab3.run("sh", "-c", make, host="node1", check=True).stdout
    known = f"@cert-authority * {authority}"
    with user_files(lab3, known, "StrictHostKeyChecking accept-new\n"):
        with second_sshd(lab3, "HostCertificate=/tmp/host-cert.pub"):
            said = assert_runs(lab3)
            assert "@cert-authority" in said or not has_libssh2(), said
        assert lab3.run("sh", "-c", "cat ~/.ssh/known_hosts").stdout == known  # nothing was taken on trust
    assert lab3.wait_for_no_processes() == []


def test_a_revoked_host_key_stops_the_job(lab3):
    with user_files(lab3, config="RevokedHostKeys ~/.ssh/revoked\n"):
        lab3.run("sh", "-c", "cat >~/.ssh/revoked", input=host_key(lab3) + "\n", check=True)
        done = lab3.run(HVDRUN, "-np", "1", "-H", "node1:1", "true")
    assert done.returncode == 241
    assert "node1" in done.stderr and "revoked" in done.stderr, done.stderr
    assert lab3.wait_for_no_processes() == []
