"""hvdrun over real SSH on lab hosts: nothing of ours installed on them, and nothing left on them however a job ends."""

import re
import signal
import sys

import pytest

from hvdrun import HVDRUN, LIBHVD, ROOT, has_libssh2, program, read_until
from lab import wait_until
from patience import PATIENCE

PYTHON = [sys.executable, "-S"]


def start_family(lab, *options):
    job = lab.popen(HVDRUN, "-np", "4", "--grace", "2", "-H", "node1:2,node2:2", *options, *PYTHON,
                    program("family.py"))
    read_until(job.stdout, "up", 4)
    return job


def pids(lab, host, pattern):
    return [p.pid for p in lab.ps(host) if re.search(pattern, p.args)]


def test_the_agent_is_pushed_once_and_ranks_run_on_their_nodes(lab3):
    first = lab3.run(HVDRUN, "--verbose", "-np", "4", "-H", "node1:2,node2:2", "sh", "-c", "echo $(hostname) $HVD_RANK")
    assert first.returncode == 0, first.stderr
    assert sorted(first.stdout.splitlines()) == ["[0]<stdout>:node1 0", "[1]<stdout>:node1 1", "[2]<stdout>:node2 2",
                                                 "[3]<stdout>:node2 3"]
    assert "4 ranks on 2 nodes succeeded" in first.stderr
    assert "push" in first.stderr
    again = lab3.run(HVDRUN, "--verbose", "-np", "4", "-H", "node1:2,node2:2", "true")
    assert again.returncode == 0 and "push" not in again.stderr
    assert lab3.wait_for_no_processes() == []


def test_environment_and_arguments_travel_unharmed_and_not_on_command_lines(lab3):
    odd = "a b'c\"d$(touch x)\n;|&"
    done = lab3.run("env", f"ODD={odd}", HVDRUN, "-q", "--no-tags", "-np", "1", "-H", "node1:1", *PYTHON, "-c",
                    "import os, sys; print(ascii((os.environ['ODD'], sys.argv[1], os.environ['MASTER_ADDR'])))", odd)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ascii((odd, odd, lab3.addr("node1")))


def test_libhvd_joins_across_hosts(lab3):
    done = lab3.run(HVDRUN, "-np", "4", "-H", "node1:2,node2:2", *PYTHON, program("idle.py"), LIBHVD, "0")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank \d of 4 joined", done.stdout)) == 4
    assert lab3.wait_for_no_processes() == []


@pytest.mark.parametrize("victim, pattern", [("rank", "family.py"), ("agent", "hvdrun-agent|agent-[0-9a-f]{64}|/agent")])
def test_a_killed_rank_or_agent_leaves_nothing_on_any_host(lab3, victim, pattern):
    import os
    job = start_family(lab3)
    found = pids(lab3, "node2", pattern)
    assert found, lab3.ps("node2")
    os.kill(found[-1], 9)
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode != 0
    assert "node2" in err, err
    if victim == "rank":
        assert re.search(r"rank [23] on node2 \(pid \d+\) was killed by signal 9 \(SIGKILL\)", err)
        assert job.returncode == 137
    assert lab3.wait_for_no_processes() == []


def test_a_killed_launcher_leaves_nothing_on_any_host(lab3):
    import os
    job = start_family(lab3, "--reconnect-timeout", "4")
    os.kill(lab3.pid_of(job), 9)
    job.wait(PATIENCE)
    assert lab3.wait_for_no_processes() == []


def test_a_script_that_exits_3_gives_3(lab3):
    done = lab3.run(HVDRUN, "-np", "4", "--grace", "2", "-H", "node1:2,node2:2", "sh", "-c",
                    "[ $HVD_RANK = 2 ] && exit 3; sleep 1000")
    assert done.returncode == 3
    assert re.search(r"rank 2 on node2 \(pid \d+\) exited with code 3", done.stderr)
    assert lab3.wait_for_no_processes() == []


def test_no_such_script_is_one_line_naming_it(lab3):
    done = lab3.run(HVDRUN, "-np", "4", "-H", "node1:2,node2:2", *PYTHON, "no_such.py")
    assert done.returncode == 127
    assert f"no such script: '{ROOT}/no_such.py'" in done.stderr
    assert lab3.wait_for_no_processes() == []


def test_every_unreachable_host_is_named_with_what_to_try(lab3):
    done = lab3.run(HVDRUN, "-np", "3", "-H", "node1:1,nosuchhost:1,launcher.invalid:1", "true")
    assert done.returncode == 241
    for host in ("nosuchhost", "launcher.invalid"):
        cause = "cannot resolve" if has_libssh2() else "the system's ssh exited with code 255: ssh: Could not resolve"
        assert re.search(rf"^hvdrun: {re.escape(host)}: {cause}", done.stderr, re.M), done.stderr
    assert lab3.wait_for_no_processes() == []


def test_a_host_with_a_dead_address_is_reached_at_its_other_one(make_lab):
    if not has_libssh2():
        pytest.skip("built without libssh2: which address is tried is up to the system's ssh")
    lab = make_lab(2)
    made = lab.run("sh", "-c", "cat > ~/.ssh/twofold; for n in node1 node2; do echo $(getent hosts $n | cut -d' ' -f1) "
                   "twofold; done >> /etc/hosts", input="StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n")
    assert made.returncode == 0, made.stderr
    one, other = lab.addr("node1"), lab.addr("node2")

    def run(timeout):
        return lab.run("sh", "-c", f"(cat ~/.ssh/twofold; echo ConnectTimeout {timeout}) > ~/.ssh/with_timeout; "
                       f"exec {HVDRUN} --no-tags --ssh-config ~/.ssh/with_timeout -np 1 -H twofold:1 hostname")

    for dead, alive in (("node1", "node2"), ("node2", "node1")):  # one of them is tried first
        lab.cut("launcher", dead)
        done = run(240)
        assert (done.returncode, done.stdout.strip()) == (0, alive), done.stderr
        lab.heal("launcher", dead)
    lab.cut("launcher", "node1")
    lab.cut("launcher", "node2")
    told = run(2)
    assert told.returncode == 241
    said = re.search(r"twofold: not connected to twofold port 22 within 2 s: (\S+) gave no answer, (\S+) gave no answer;",
                     told.stderr)
    assert said and set(said.groups()) == {one, other}, told.stderr


def test_a_refused_port_is_told(lab3):
    done = lab3.run(HVDRUN, "-np", "1", "-p", "2222", "-H", "node1:1", "true")
    assert done.returncode == 241
    assert "node1" in done.stderr and "refused" in done.stderr and "2222" in done.stderr


def test_a_changed_host_key_stops_the_job(lab3):
    known = lab3.run("sh", "-c", "cp ~/.ssh/known_hosts ~/.ssh/kept; cat ~/.ssh/known_hosts").stdout
    try:
        # node1 is known by node2's key: what an impostor would look like.
        swap = ("sed -i -e 's/node1/nodeX/g' -e 's/node2/node1/g' "
                f"-e 's/{lab3.addr('node1')}/10.255.255.1/g' -e 's/{lab3.addr('node2')}/{lab3.addr('node1')}/g' "
                "~/.ssh/known_hosts")
        lab3.run("sh", "-c", swap)
        done = lab3.run(HVDRUN, "-np", "1", "-H", "node1:1", "true")
    finally:
        lab3.run("sh", "-c", "mv ~/.ssh/kept ~/.ssh/known_hosts")
    assert known
    assert done.returncode == 241
    assert "node1" in done.stderr and "CHANGED" in done.stderr and "ssh-keygen" in done.stderr and "-R" in done.stderr
    assert lab3.wait_for_no_processes() == []


def test_a_cut_network_ends_the_job_naming_the_node(make_lab):
    lab = make_lab(2)
    job = lab.popen(HVDRUN, "-np", "2", "--grace", "1", "--reconnect-timeout", "5", "-H", "node1:1,node2:1", *PYTHON,
                    program("family.py"))
    read_until(job.stdout, "up", 2)
    lab.cut("node2")
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 243
    assert re.search("node node2 was lost, with rank 1: no sign of life from its agent for .* not reached again", err)
    # The node that nobody reaches any more cleans up by itself; sshd's own half of the dead connection is not ours.
    wait_until(lambda: all("sshd" in p.args for p in lab.ps()), "the cut node still runs the job")


def finish(job, first=()):
    """`first` and what it still prints: rank -> its lines in their order, without the tag; and what hvdrun said."""
    out, err = job.stdout.read(), job.stderr.read()  # not communicate(), which forgets what readline() has read ahead
    assert job.wait(PATIENCE) == 0, err
    ranks = {}
    for line in "".join(first).splitlines() + out.splitlines():
        ranks.setdefault(line[1], []).append(line.removeprefix(f"[{line[1]}]<stdout>:"))
    return ranks, err


def paced_lines(rank, count):
    return [f"{rank} {i} ".ljust(99, "x") for i in range(count)]


def test_a_connection_that_breaks_loses_and_doubles_nothing(lab3):
    import os
    job = lab3.popen(HVDRUN, "-np", "2", "--reconnect-timeout", "120", "-H", "node1:1,node2:1", *PYTHON,
                     program("pace_lines.py"), "on", "200000")
    first = read_until(job.stdout, r"^\[1\]")  # before its ranks run, a job ends when the connection does
    for _ in range(2):
        # The sshd that serves our connection, while the ranks print: a reset, as a firewall or a tired sshd does it.
        serving = wait_until(lambda: pids(lab3, "node2", r"sshd: .*@notty"), "no connection to node2")
        before = pids(lab3, "node2", "agent")
        os.kill(serving[-1], 9)
        wait_until(lambda: set(pids(lab3, "node2", "agent")) - set(before), "no new connection")
    for host in ("node1", "node2"):
        for pid in pids(lab3, host, r"python.* \S*pace_lines\.py on "):
            os.kill(pid, signal.SIGUSR1)
    ranks, err = finish(job, first)
    for rank in "01":
        *lines, last = ranks[rank]
        assert lines == paced_lines(rank, len(lines)) and last == f"{rank} end {len(lines)}"
    assert re.search("node2: .*(connection|way to it) broke.*; trying to reach it again", err) and "reached again" in err
    assert "succeeded" in err
    assert lab3.wait_for_no_processes() == []


def test_a_link_cut_for_20_s_loses_and_doubles_nothing(make_lab):
    import time
    lab = make_lab(1)
    job = lab.popen(HVDRUN, "-np", "1", "--reconnect-timeout", "240", "-H", "node1:1", *PYTHON,
                    program("pace_lines.py"), "300000", "10e6")
    first = [job.stdout.readline() for _ in range(1000)]
    lab.cut("node1")
    time.sleep(20)  # sleeps: the cut lasts as long as it does
    lab.heal("node1")
    ranks, _ = finish(job, first)
    assert ranks["0"] == paced_lines(0, 300000)
    assert lab.wait_for_no_processes() == []


def ctxt_switches(pid):
    import pathlib
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        text = (task / "status").read_text()
        total += sum(int(n) for n in re.findall(r"ctxt_switches:\s+(\d+)", text))
    return total


def test_an_idle_job_wakes_nobody(lab3):
    import time
    job = lab3.popen(HVDRUN, "-np", "4", "-H", "node1:2,node2:2", *PYTHON, program("idle.py"), LIBHVD, str(2 * PATIENCE))
    read_until(job.stdout, "joined", 4)
    launcher = lab3.pid_of(job)
    everyone = {p.pid: p.args for p in lab3.ps() if re.search("agent|idle.py", p.args) and "sshd" not in p.args}
    everyone[launcher] = "launcher"
    assert len(everyone) >= 4 + 4 + 1  # ranks, two agents of two processes each, the launcher
    wait_until(lambda: ctxt_switches(launcher) > 0, "no counters")
    switches = {}

    def is_quiet():
        before, begin = {pid: ctxt_switches(pid) for pid in everyone}, time.monotonic()
        time.sleep(10)  # sleeps: that nobody wakes meanwhile is what is tested
        tens = (time.monotonic() - begin) / 10
        switches.update({f"{args} ({pid})": (ctxt_switches(pid) - before[pid]) / tens for pid, args in everyone.items()})
        return all(count < 20 for count in switches.values())

    time.sleep(2)  # sleeps: past the start, which on a busy machine lasts longer, and then it is measured again
    wait_until(is_quiet, switches)
    job.terminate()
    job.communicate(timeout=PATIENCE)
