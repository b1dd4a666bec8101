"""Many nodes, much output: what the launcher may need of memory, descriptors and connections."""

import json
import os
import pathlib
import re
import resource
import shlex
import signal
import subprocess
import sys
import time

import pytest

from hvdrun import (HVDRUN, LIBHVD, check_paced, end_pacing, env_with, hvdrun, kill, processes_with, program, read_until,
                    read_until_each, start, wait_until_gone)
from patience import PATIENCE, left_of
from ways import EXECUTES

PYTHON = [sys.executable, "-S"]



def hosts(count):
    return ",".join(f"n{i}:1" for i in range(count))


def peak_kb(pid):
    return int(re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


def with_files(soft, hard):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_job_of_many_nodes_raises_its_own_limit_on_open_files_and_not_that_of_its_ranks(marker):
    done = hvdrun("-q", "--no-tags", "--rsh", EXECUTES, "--start-timeout", PATIENCE, "-H", f"localhost:1,{hosts(40)}", "sh", "-c",
                  "ulimit -Sn", env=env_with(marker), preexec_fn=with_files(100, 1000))
    assert (done.returncode, done.stdout) == (0, "100\n" * 41), done.stderr
    assert wait_until_gone(marker) == {}


def test_too_low_a_limit_on_open_files_is_told_with_its_number_before_anything_is_started():
    done = hvdrun("--rsh", EXECUTES, "-H", hosts(40), "true", preexec_fn=with_files(100, 100))
    assert done.returncode == 242
    assert re.fullmatch(r"hvdrun: for 40 nodes about \d+ open files are needed, and the limit is 100 \(ulimit -Hn\); raise nofile .*\n",
                        done.stderr), done.stderr


def test_a_reader_that_is_100_times_slower_than_the_writers_costs_no_memory(marker):
    writer = [sys.executable, "-S", "-c", "import os\nblock = (b'x' * 99 + b'\\n') * 625\nwhile True: os.write(1, block)"]
    job = start("-np", 4, "--grace", 1, *writer, env=env_with(marker), text=False)
    # Four such writers make some 500 MB a second together. Until then memory would grow by what is not read.
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        assert os.read(job.stdout.fileno(), 50_000)
        time.sleep(0.01)  # sleeps: what is tested
    assert peak_kb(job.pid) <= 64 << 10
    job.stdout.close()
    assert job.wait(PATIENCE) == 141, job.stderr.read()
    job.stderr.close()
    assert wait_until_gone(marker) == {}


# --- the tree: above --fanout nodes, some reach the others


def children_of(pid):
    return {int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def test_more_nodes_than_the_fanout_form_a_tree_and_the_launcher_has_few_connections(marker):
    job = start("--verbose", "--fanout", 2, "--rsh", EXECUTES, "-H", f"localhost:1,{hosts(9)}", *PYTHON, program("family.py"),
                env=env_with(marker))
    read_until(job.stdout, "up", 10)
    assert len(children_of(job.pid)) == 3  # the local agent, and two commands
    job.terminate()
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 143
    opened = dict(re.findall(r"\] (\w+): opening \((.*)\)$", err, re.M))
    assert opened == {"localhost": "local", "n0": "rsh", "n1": "rsh", **{f"n{i}": f"rsh from n{i % 2}" for i in range(2, 6)},
                      "n6": "rsh from n2", "n7": "rsh from n3", "n8": "rsh from n4"}
    assert wait_until_gone(marker) == {}


def test_a_plan_shows_who_relays_to_whom():
    words = ["plan", "--fanout", 2, "-H", hosts(5), "true"]
    plan = json.loads(hvdrun("plan", "--json", *words[1:]).stdout)
    assert [node.get("relay") for node in plan["nodes"]] == [None, None, "n0", "n1", "n0"]
    assert "3 of 5 nodes are reached through others (--fanout)" in hvdrun(*words).stdout
    assert "through others" not in hvdrun(*words[:2], 5, *words[3:]).stdout


def test_ranks_of_a_tree_join_print_everything_and_read_nothing_into_each_other(marker):
    done = hvdrun("--fanout", 2, "--rsh", EXECUTES, "-H", hosts(7), *PYTHON, program("idle.py"), LIBHVD, 0, env=env_with(marker))
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank \d of 7 joined", done.stdout)) == 7
    done = hvdrun("-q", "--no-tags", "--fanout", 2, "--rsh", EXECUTES, "-H", hosts(7), *PYTHON, program("pace_lines.py"), 20000, 1e9,
                  env=env_with(marker))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for rank in "0123456":
        assert [line for line in lines if line[0] == rank] == [f"{rank} {i} ".ljust(99, "x") for i in range(20000)]
    assert wait_until_gone(marker) == {}


def test_a_rank_that_fails_behind_a_relay_is_named(marker):
    done = hvdrun("--fanout", 1, "--rsh", EXECUTES, "--grace", 1, "-H", hosts(4), *PYTHON, program("family.py"), 3, 5, env=env_with(marker))
    assert done.returncode == 5
    assert "rank 3 on n3" in done.stderr
    assert wait_until_gone(marker) == {}


def test_where_nodes_cannot_reach_each_other_the_launcher_does_and_says_so_once(marker):
    here_only = "sh -c '[ -z \"$FAR\" ] || { echo no way from here >&2; exit 9; }; shift; FAR=1 exec \"$@\"' x"
    done = hvdrun("--fanout", 2, "--rsh", here_only, "-H", hosts(7), "true", env=env_with(marker))
    assert done.returncode == 0, done.stderr
    said = re.findall(r"^hvdrun: n\d: cannot be reached from n\d \(n\d: rsh: .* from n\d exited with code 9: no way from here\); all that",
                      done.stderr, re.M)
    assert len(said) == 1 and len(done.stderr.splitlines()) == 2, done.stderr
    assert wait_until_gone(marker) == {}


def test_hosts_behind_a_relay_that_is_not_there_are_tried_too_and_all_that_fail_are_named(marker):
    some = "sh -c 'case $1 in n0|n3) echo $1 is down >&2; exit 8;; esac; shift; exec \"$@\"' x {host}"
    done = hvdrun("--fanout", 2, "--rsh", some, "-H", hosts(6), "true", env=env_with(marker))
    assert done.returncode == 241
    assert sorted(re.findall(r"(n\d): rsh: .* exited with code 8: n\d is down$", done.stderr, re.M)) == ["n0", "n3"], done.stderr
    assert wait_until_gone(marker) == {}


@pytest.fixture
def far(marker, tmp_path):
    """An --rsh command to nodes whose processes are no descendants of whoever reaches them."""
    path = tmp_path / "node"
    node = subprocess.Popen([*PYTHON, program("far_node.py"), "serve", path], env=env_with(marker, TMPDIR=str(tmp_path)),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert node.stdout.readline() == "up\n"
    yield shlex.join([*PYTHON, program("far_node.py"), "go", str(path), "{host}"])
    node.communicate("", PATIENCE)


def go_to(marker, host):
    """The process that carries bytes to the host."""
    return next(pid for pid, args in processes_with(marker).items() if re.search(rf"far_node\.py go \S+ {host} sh$", args))


def left(marker):
    """What is left of a job: all with the marker, but for the nodes themselves. One that was not let go stays for long."""
    return left_of(lambda: {pid: args for pid, args in processes_with(marker).items() if "far_node.py serve" not in args})


def paced(far, marker):
    job = start("--rsh", far, "--fanout", 2, "--reconnect-timeout", 4000, "-H", hosts(7), *PYTHON, program("pace_lines.py"), "on",
                200000, env=env_with(marker))
    return job, read_until_each(job.stdout, 7)


def check_nothing_lost(job, marker, first, ranks):
    end_pacing(marker)
    out, err = job.stdout.read(), job.stderr.read()  # not communicate(), which forgets what readline() has read ahead
    assert job.wait(PATIENCE) == 0, err
    check_paced("".join(first).splitlines() + out.splitlines(), ranks)
    return err


def test_a_command_between_two_nodes_that_is_killed_is_started_anew_and_nothing_is_lost(far, marker):
    job, first = paced(far, marker)
    kill(go_to(marker, "n2"))
    err = check_nothing_lost(job, marker, first, 7)
    # n2 relays to n6.
    assert set(re.findall(r"^hvdrun: (n\d): reached again", err, re.M)) == {"n2", "n6"}, err
    assert left(marker) == {}


def test_a_connection_to_a_relay_that_breaks_takes_those_behind_it_along_and_all_are_reached_again(far, marker):
    job, first = paced(far, marker)
    kill(go_to(marker, "n0"))
    err = check_nothing_lost(job, marker, first, 7)
    assert set(re.findall(r"^hvdrun: (n\d): reached again", err, re.M)) == {"n0", "n2", "n4", "n6"}, err
    assert left(marker) == {}


def far_family(far, marker):
    job = start("--rsh", far, "--fanout", 2, "--reconnect-timeout", 8, "--grace", 2, "-H", hosts(7), *PYTHON, program("family.py"),
                env=env_with(marker))
    read_until(job.stdout, "up", 7)
    return job


def agent_of(marker, host, of_rank="family.py"):
    """The guardian and the agent on a host: the parent of its rank, and that one's."""
    rank = next(pid for pid, args in processes_with(f"HVD_RANK={host[1:]}\0").items() if of_rank in args and pid in processes_with(marker))
    parent = lambda pid: int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])  # noqa: E731
    return parent(parent(rank)), parent(rank)


@pytest.mark.parametrize("nth", [0, 1], ids=["guardian", "agent"])
@pytest.mark.parametrize("host", ["n0", "n2", "n6"])
def test_a_killed_agent_of_a_tree_is_named_and_leaves_nothing(far, marker, host, nth):
    job = far_family(far, marker)
    kill(agent_of(marker, host)[nth])
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode in (243, 143), err
    assert re.search(rf"on {host} |node {host} was lost", err), err
    assert left(marker) == {}


def test_an_agent_that_is_told_to_end_ends_the_job_and_not_only_what_is_behind_it(far, marker):
    job = far_family(far, marker)
    os.kill(agent_of(marker, "n0")[1], signal.SIGTERM)
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 243 and "the agent on n0 ends, with rank 0: it got SIGTERM" in err, err
    assert left(marker) == {}


LAST_WORDS = """
import signal, sys, time
def end(*_):
    print("last words", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
while True: time.sleep(60)
"""


def test_what_ranks_say_while_their_agent_is_told_to_end_is_heard(marker):
    job = start("--rsh", EXECUTES, "-H", hosts(2), *PYTHON, "-c", LAST_WORDS, env=env_with(marker))
    read_until(job.stdout, "up", 2)
    os.kill(agent_of(marker, "n0", "last words")[1], signal.SIGTERM)
    out, err = job.communicate(timeout=PATIENCE)
    assert "the agent on n0 ends, with rank 0: it got SIGTERM" in err, err
    assert out.count("last words") == 2, (out, err)
    assert left(marker) == {}


def test_a_ctrl_c_reaches_the_ranks_of_a_tree_and_a_second_one_kills_them(far, marker):
    job = far_family(far, marker)
    job.send_signal(signal.SIGINT)
    read_until(job.stderr, "once more to kill the ranks at once")
    job.send_signal(signal.SIGINT)
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 130, err
    assert left(marker) == {}


def test_a_killed_launcher_of_a_tree_leaves_nothing(far, marker):
    job = far_family(far, marker)
    kill(job.pid)
    job.communicate(timeout=PATIENCE)
    assert left(marker) == {}


# --- over ssh


def test_nodes_without_keys_for_each_other_are_reached_from_the_launcher_and_that_is_said_once(lab3):
    done = lab3.run(HVDRUN, "--fanout", "1", "-H", "node1:1,node2:1,node3:1", *PYTHON, program("idle.py"), LIBHVD, "0")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank \d of 3 joined", done.stdout)) == 3
    assert re.findall(r"^hvdrun: (node\d): cannot be reached from (node\d) \(\w+: ssh from \w+ exited with code 255", done.stderr,
                      re.M) == [("node2", "node1")], done.stderr
    assert lab3.wait_for_no_processes() == []


def test_nodes_with_keys_for_each_other_form_a_tree_over_ssh(make_lab):
    lab = make_lab(3)
    lab.share_keys("node1", "node2")
    done = lab.run(HVDRUN, "--verbose", "--fanout", "1", "-H", "node1:1,node2:1,node3:1", *PYTHON, program("idle.py"), LIBHVD, "0")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank \d of 3 joined", done.stdout)) == 3
    assert "node3: opening (ssh from node2)" in done.stderr and "cannot be reached from" not in done.stderr
    assert lab.wait_for_no_processes() == []  # else its connections are counted with those of the next
    # node1 is the only one that the launcher has a connection with, and so is each for the next.
    job = lab.popen(HVDRUN, "--fanout", "1", "--grace", "2", "--reconnect-timeout", "4", "-H", "node1:1,node2:1,node3:1", *PYTHON, program("family.py"))
    read_until(job.stdout, "up", 3)
    sessions = [p.host for p in lab.ps() if re.search(r"sshd: .*@notty", p.args)]
    assert sorted(set(sessions)) == ["node1", "node2", "node3"] and len(sessions) == 3, sessions
    os.kill(lab.pid_of(job), 9)
    job.wait(PATIENCE)
    assert lab.wait_for_no_processes() == []
