"""scripts/lab itself: what it makes, what it cuts, and that it leaves nothing."""

import os
import pathlib
import signal
import subprocess

import pytest
from lab import ROOT, Lab, wait_until
from patience import PATIENCE

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])).close()"


KINDS = ("net", "pid", "mnt", "uts", "ipc")


def connects(lab, host, other, patience=PATIENCE):
    done = lab.run("/usr/bin/python3", "-c", CONNECT, other, "22", str(patience), host=host)
    return done.returncode == 0


def machine():
    """What a lab could leave on the machine. Of mounts, which other tests make meanwhile, those that hold its folder."""
    def out(*argv):
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    mounts = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return {"named namespaces": out("ip", "netns", "list"), "links": out("ip", "-o", "link").count("\n"),
            "mounts": [line for line in mounts if f"test-{os.getpid()}-" in line]}


def left_of(lab, namespaces=()):
    """Processes of this lab, by its name and by the namespaces they are in; and its folder.

    It looks twice before it says that nothing is left: one look misses a process whose parent ends before its turn."""
    return seen_of(lab, namespaces) or seen_of(lab, namespaces)


def seen_of(lab, namespaces):
    left = [str(lab.shared.parent)] if lab.shared.parent.exists() else []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            args = (process / "cmdline").read_bytes()
            inside = {os.readlink(process / "ns" / kind) for kind in KINDS}
        except OSError:
            continue  # ended meanwhile, or not ours to see
        if lab.name.encode() in args or inside & set(namespaces):
            left.append(f"{process.name} {args.decode()}")
    return left


def test_each_host_has_its_own_name_and_address(lab3):
    for i in (1, 2, 3):
        assert lab3.run("hostname", host=f"node{i}").stdout == f"node{i}\n"
        assert lab3.addr(f"node{i}") in lab3.run("ip", "-4", "-o", "addr", "show", "eth0", host=f"node{i}").stdout
    assert lab3.run("hostname").stdout == "launcher\n"


def test_every_node_reaches_every_other_by_name(lab3):
    names = ["launcher", "node1", "node2", "node3"]
    for host in names:
        for other in names[1:]:
            assert connects(lab3, host, other), f"{host} does not reach {other}"


def test_ssh_from_the_launcher_checks_host_keys_and_asks_nothing(lab3):
    for i in (1, 2, 3):
        done = lab3.run("ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", f"node{i}", "hostname")
        assert (done.returncode, done.stdout, done.stderr) == (0, f"node{i}\n", "")


def test_an_ssh_client_that_does_not_know_the_host_key_is_refused(lab3):
    done = lab3.run("ssh", "-o", "BatchMode=yes", "-o", "UserKnownHostsFile=/dev/null", "-o",
                    "StrictHostKeyChecking=yes", "node1", "true")
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_an_unknown_name_fails_at_once(lab3):
    done = lab3.run("getent", "hosts", "node9")
    assert done.returncode == 2


def test_hosts_share_the_checkout_but_not_homes_or_temporary_files(lab3):
    home = lab3.run("sh", "-c", "echo $HOME", host="node1").stdout.strip()
    for place in (home, "/tmp", "/dev/shm", "/run"):
        lab3.run("touch", f"{place}/mark", host="node1")
        assert lab3.path("node1", f"{place}/mark").exists()
        for host in ("node2", "launcher"):
            assert not lab3.path(host, f"{place}/mark").exists()
        assert not pathlib.Path(f"{place}/mark").exists()
    lab3.shared.joinpath("mark").write_text("x")
    for host in ("node2", "launcher"):
        assert lab3.run("cat", str(lab3.shared / "mark"), host=host).stdout == "x"
        assert lab3.run("test", "-x", str(ROOT / "scripts/lab"), host=host).returncode == 0


def test_run_keeps_folder_input_output_and_exit_code(lab3):
    assert lab3.run("pwd", cwd=ROOT / "tests").stdout == f"{ROOT}/tests\n"
    assert lab3.run("cat", input="a\nb").stdout == "a\nb"
    done = lab3.run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert lab3.run("sh", "-c", "kill -KILL $$").returncode == 128 + signal.SIGKILL
    assert lab3.run("/no/such/program").returncode == 127


def test_run_passes_a_signal_on_once(lab3):
    process = lab3.popen("bash", "-c", "trap 'echo got' INT; trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done")
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "got\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 5
    assert process.stdout.read() == ""


def test_a_command_ends_with_the_lab_run_that_started_it(lab3):
    assert lab3.wait_for_no_processes() == []  # of connections that were tried before
    process = lab3.popen("sleep", "600", host="node1")
    command = lab3.pid_of(process)
    assert [(p.pid, p.args) for p in lab3.ps("node1")] == [(command, "sleep 600")]
    process.kill()
    process.wait(PATIENCE)
    assert lab3.wait_for_no_processes("node1") == []


def test_ps_lists_exactly_what_runs_and_what_was_left_behind(lab3):
    assert lab3.wait_for_no_processes() == []  # of connections that were tried before
    assert lab3.run("sh", "-c", "setsid sleep 601 >/dev/null 2>&1 &", host="node2").returncode == 0
    left = wait_until(lambda: [p for p in lab3.ps() if p.args == "sleep 601"], "the orphan is not listed")
    assert [p.host for p in left] == ["node2"]
    assert len(lab3.ps("node2", everything=True)) == 3  # and process 1 and sshd
    os.kill(left[0].pid, signal.SIGKILL)
    assert lab3.wait_for_no_processes() == []  # also no zombie: process 1 reaps


def test_a_cut_pair_loses_packets_both_ways_and_only_between_the_two(lab3):
    lab3.cut("node1", "node2")
    try:
        assert not connects(lab3, "node1", "node2", patience=2)
        assert not connects(lab3, "node2", "node1", patience=2)
        assert connects(lab3, "node1", "node3")
        assert connects(lab3, "launcher", "node2")
    finally:
        lab3.heal("node1", "node2")
    assert connects(lab3, "node1", "node2")
    assert connects(lab3, "node2", "node1")


def test_a_host_with_its_cable_pulled_reaches_nobody(lab3):
    lab3.cut("node3")
    try:
        assert not connects(lab3, "launcher", "node3", patience=2)
        assert not connects(lab3, "node3", "node1", patience=2)
        assert connects(lab3, "launcher", "node1")
    finally:
        lab3.heal()
    assert connects(lab3, "launcher", "node3")


def test_heal_without_names_mends_every_cut(lab3):
    lab3.cut("node1", "node2")
    lab3.cut("launcher", "node3")
    lab3.heal()
    assert connects(lab3, "node1", "node2")
    assert connects(lab3, "launcher", "node3")


def test_heal_of_one_host_mends_its_cuts_and_no_other(lab3):
    lab3.cut("node1", "node2")
    lab3.cut("launcher", "node3")
    try:
        lab3.heal("node1")
        assert connects(lab3, "node1", "node2")
        assert connects(lab3, "node2", "node1")
        assert not connects(lab3, "launcher", "node3", patience=2)
    finally:
        lab3.heal()


def test_a_rate_limits_each_nodes_link_both_ways(make_lab):
    lab = make_lab(2, rate="100mbit")
    for i in (1, 2):
        assert "tbf" in (sent := lab.run("tc", "qdisc", "show", "dev", "eth0", host=f"node{i}").stdout)
        assert "rate 100Mbit" in sent
        assert "rate 100Mbit" in lab.run("tc", "qdisc", "show", "dev", f"node{i}", host="switch").stdout
    assert "tbf" not in lab.run("tc", "qdisc", "show", "dev", "eth0").stdout


def test_two_labs_at_once_do_not_see_each_other(make_lab):
    one, two = make_lab(1), make_lab(1)
    process = one.popen("sleep", "602", host="node1")
    one.pid_of(process)
    assert [p.args for p in one.ps()] == ["sleep 602"]
    assert two.ps() == []
    one.down()
    assert two.run("hostname", host="node1").stdout == "node1\n"


@pytest.mark.parametrize("arguments, words", [
    (("up", "0"), "1 to 1000"),
    (("up", "1", "--rate", "fast"), "is no rate"),
    (("run", "true"), "no lab"),
    (("cut", "node1"), "no lab"),
])
def test_a_wrong_request_is_one_line_and_leaves_nothing(lab_possible, arguments, words):
    lab = Lab(1)
    done = subprocess.run(lab.command(*arguments), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert words in done.stderr and done.stderr.count("\n") == 1
    assert left_of(lab) == []


def test_a_host_that_is_not_there_is_named(lab3):
    done = lab3.run("true", host="node7")
    assert done.returncode == 1
    assert "node7" in done.stderr and "node1" in done.stderr


def test_a_second_up_of_the_same_name_is_refused_and_harms_nothing(make_lab):
    lab = make_lab(1)
    done = subprocess.run(lab.command("up", "1"), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and "is up already" in done.stderr
    assert lab.run("hostname", host="node1").stdout == "node1\n"


def test_down_leaves_nothing_and_may_be_repeated(lab_possible):
    before = machine()
    lab = Lab(2)
    lab.up()
    process = lab.popen("sleep", "603", host="node1")
    lab.pid_of(process)
    lab.run("sh", "-c", "setsid sleep 604 >/dev/null 2>&1 &", host="node2")
    assert len(lab.ps()) == 2
    namespaces = {os.readlink(f"/proc/{p.pid}/ns/{kind}") for p in lab.ps(everything=True) for kind in KINDS}
    assert len(namespaces) == 3 * len(KINDS)
    lab.down()
    assert left_of(lab, namespaces) == []
    assert machine() == before
    assert process.wait(PATIENCE) == 128 + signal.SIGKILL
    lab.down()


def has_come_to(step, folder):
    """Has an "up" of 6 nodes come to this step of its work?"""
    try:
        return [folder.exists(), (folder / "log").exists(), len(list(folder.glob("*.key"))) > 3,
                (folder / "lab.json").exists(),
                "Server listening" in (folder / "log").read_text()][step]
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_an_up_that_is_interrupted_leaves_nothing(lab_possible, number):
    """At several moments of its work, from key making to the last host."""
    before = machine()
    for step in range(5):
        lab = Lab(6)
        up = subprocess.Popen(lab.command("up", "6"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: up.poll() is not None or has_come_to(step, lab.shared.parent), "up does nothing")
            up.send_signal(number)
            code = up.wait(PATIENCE)
            if code == 0:  # it was faster: a whole lab is there
                lab.down()
            elif number == signal.SIGKILL:
                # Nobody was left to tidy up: its processes end by themselves; down removes what the folder still holds.
                wait_until(lambda: set(left_of(lab)) <= {str(lab.shared.parent)}, "processes are left")
                lab.down()
            wait_until(lambda: left_of(lab) == [], f"something is left of a lab interrupted at step {step}")
            assert machine() == before
        finally:
            up.kill()
            up.wait(PATIENCE)
            lab.down()
