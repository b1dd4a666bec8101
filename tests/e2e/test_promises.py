"""What hvdrun promises when something breaks, fault by fault: each has a test here, or in the file that is named.

| fault | what the user sees | within | test |
|---|---|---|---|
| a rank exits with a code, or by a signal | that rank first, its code; the others are stopped | 2 s + grace | test_a_rank_that_... |
| a rank is killed while all are in an allreduce | the others get an error that names it | 5 s | test_ranks_in_... |
| a rank is stopped (SIGSTOP) | it is named; hvdrun top shows who waits for it | stall check | test_observe.py::test_a_rank_on_another_host_... |
| an agent is killed | its node's ranks die with it; the job fails naming the node | 5 s | test_an_agent_... |
| an agent is stopped (SIGSTOP) | the same | 30 s; over ssh the connection's time besides | test_a_stopped_... |
| Ctrl-Z | all ranks stop, on whatever host, and go on with hvdrun | at once | test_suspend.py |
| the launcher is killed | nothing is left on any node | reconnect timeout + grace | test_a_killed_launcher_... |
| the ssh connection is cut, the network comes back | no line is lost or doubled | - | test_ssh.py::test_a_link_cut_..., test_a_connection_that_... |
| the network between two nodes is gone for good | the job fails naming both ends | 14 s | test_a_network_... |
| the log's disk is full, or its directory gone | ranks and console go on, one error, exit code 244 | - | test_a_full_..., test_output.py::test_output_that_cannot_... |
| the reader of the output is gone | the job is stopped as a Unix filter would be | 2 s + grace | test_a_reader_... |
| the reader of the output takes nothing | the job ends all the same; last words reach a standard error that is taken | 2 s + grace | test_output.py::test_a_job_ends_though_... |
| a host does not answer, its key changed, it refuses ours; no such program or script | a line for each, before any rank runs | connect timeout | test_hosts_..., test_what_... |
| a host list, host file, settings or job file is malformed | file:line:column, expected, found; nothing runs | - | test_a_malformed_... |

"Within" holds on a machine that has time for it; here each is given three times that, and what a busy machine needs.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

import pytest

from hvdrun import (HVDRUN, LIBHVD, ROOT, env_with, guardian_and_agent, hvdrun, kill, program, read_until, start,
                    wait_until_gone, without_copies, without_progress)
from patience import PATIENCE, growing

PYTHON = [sys.executable, "-S"]
GRACE = 3
BUSY = 30  # seconds more for a machine that does other things too
FAMILY = [*PYTHON, program("family.py")]
AGENT = r"hvdrun-agent|/agent-[0-9a-f]{64}"
NODE_LOST, UNREACHABLE, NO_PROGRAM, OUTPUT_FAILED, USAGE = 243, 241, 127, 244, 240


class Within:
    """with Within(5): ... what must be done in 5 s. Time in which this process itself does not run (a machine that is stopped,
    or far too busy) does not count."""

    TICK = 0.1  # seconds

    def __init__(self, seconds):
        self.limit = 3 * seconds + BUSY
        self.took = 0
        self.is_over = threading.Event()
        self.clock = threading.Thread(target=self.tick)

    def tick(self):
        while not self.is_over.wait(self.TICK):
            self.took += self.TICK

    def __enter__(self):
        self.clock.start()

    def __exit__(self, kind, *_):
        self.is_over.set()
        self.clock.join()
        assert kind or self.took <= self.limit, f"it took {self.took:.1f} s"


def pids(lab, host, pattern):
    """{pid: command line}"""
    return {p.pid: p.args for p in lab.ps(host) if re.search(pattern, p.args) and "sshd" not in p.args}


def agent_on(lab, host):
    """Not its guardian, of which it is a fork."""
    looks = pids(lab, host, AGENT)
    guardians = without_copies(looks)
    (agent,) = [pid for pid in without_copies(looks, 1) if pid not in guardians]
    return agent


def own_words(err):
    return [line for line in without_progress(err).splitlines() if line.startswith("hvdrun: ")]


def family(lab, *options):
    job = lab.popen(HVDRUN, "-np", "3", "--grace", str(GRACE), *options, "-H", "node1:1,node2:2", *FAMILY)
    read_until(job.stdout, "up", 3)
    return job


@pytest.mark.parametrize("how, code, words", [("exit 7", 7, "exited with code 7"),
                                              ("kill -SEGV $$", 139, r"was killed by signal 11 \(SIGSEGV\)")])
def test_a_rank_that_fails_is_told_first_and_the_others_are_stopped(lab3, how, code, words):
    # Those that are stopped ignore SIGTERM, and write more than anybody wants to read of it.
    script = (f"if [ $HVD_RANK = 1 ]; then read _; echo why >&2; {how}; fi; "
              "trap 'echo died of it >&2' TERM; while :; do sleep 0.1; done")
    job = lab3.popen(HVDRUN, "-np", "3", "--grace", str(GRACE), "-H", "node1:1,node2:2", "sh", "-c", script)
    with Within(2 + GRACE):
        out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == code
    said = own_words(err)
    assert re.fullmatch(rf"hvdrun: rank 1 on node2 \(pid \d+\) {words}(; core dumped)?", said[0]), err
    assert "[1]<stderr>:why" in err.splitlines(), err
    assert lab3.wait_for_no_processes() == []


@pytest.mark.parametrize("count", [1, 1 << 20], ids=["small", "large"])
def test_ranks_in_an_allreduce_get_an_error_that_names_the_one_that_was_killed(lab3, count):
    job = lab3.popen("env", f"HVD_LIBRARY={LIBHVD}", HVDRUN, "-np", "4", "--grace", str(PATIENCE), "-H", "node1:2,node2:2",
                     *PYTHON, program("reduces.py"), str(count))
    read_until(job.stdout, "up", 4)
    victim = next(pid for pid in pids(lab3, "node2", "reduces.py")
                  if b"HVD_RANK=3\0" in pathlib.Path(f"/proc/{pid}/environ").read_bytes())
    with Within(5):
        kill(victim)
        err = job.stderr.read()
    assert job.wait(PATIENCE) == 137, err
    for rank in (0, 1, 2):
        assert re.search(rf"^\[{rank}\]<stderr>:.*rank 3\b", err, re.M), err
    assert own_words(err)[0].startswith("hvdrun: rank 3 on node2")
    assert lab3.wait_for_no_processes() == []


def test_an_agent_that_is_killed_takes_its_ranks_along_and_its_node_is_named(lab3):
    job = family(lab3)
    with Within(5):
        kill(agent_on(lab3, "node2"))
        out, err = job.communicate(timeout=PATIENCE)
        assert lab3.wait_for_no_processes("node2") == []
    assert job.returncode == NODE_LOST, err
    said = own_words(err)
    if "trying to reach it again" in said[0]:  # the system's ssh does not tell an agent's end from its own
        said.pop(0)
    assert re.match("hvdrun: node node2 was lost, with ranks 1-2", said[0]), err
    assert lab3.wait_for_no_processes() == []


def test_a_stopped_agent_is_ended_with_its_ranks_and_its_node_is_named(lab3):
    job = family(lab3, "--reconnect-timeout", "60")
    with Within(30 + 30):
        os.kill(agent_on(lab3, "node2"), signal.SIGSTOP)
        out, err = job.communicate(timeout=PATIENCE)
        assert lab3.wait_for_no_processes() == []
    assert job.returncode == NODE_LOST, err
    assert re.search("^hvdrun: node node2 was lost, with ranks 1-2", err, re.M), err


def test_a_stopped_agent_of_this_machine_is_ended_too(marker):
    job = start("-np", 2, "--grace", GRACE, *FAMILY, env=env_with(marker))
    read_until(job.stdout, "up", 2)
    _, agent = guardian_and_agent(marker)
    with Within(30):
        os.kill(agent, signal.SIGSTOP)
        out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == NODE_LOST, err
    assert "node localhost was lost, with ranks 0-1" in err and "stopped (SIGSTOP)" in err
    assert wait_until_gone(marker) == {}


def test_an_agent_that_goes_on_in_time_is_not_ended(marker, tmp_path):
    script = "echo up; read _ < $0; echo went on"
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    job = start("-np", 1, "sh", "-c", script, fifo, env=env_with(marker))
    read_until(job.stdout, "up")
    _, agent = guardian_and_agent(marker)
    os.kill(agent, signal.SIGSTOP)
    fifo.write_text("\n")
    os.kill(agent, signal.SIGCONT)
    assert job.stdout.read() == "[0]<stdout>:went on\n"
    assert job.wait(PATIENCE) == 0


def test_a_killed_launcher_leaves_nothing_on_any_node(lab3):
    job = family(lab3, "--reconnect-timeout", "4")
    with Within(4 + GRACE):
        kill(lab3.pid_of(job))
        job.communicate(timeout=PATIENCE)
        assert lab3.wait_for_no_processes() == []


@pytest.mark.parametrize("cut, count", [((0, 2), 1), ((1, 2), 40_000), ((1, 2), 1 << 20)],
                         ids=["coordinator's", "small", "large"])
def test_a_network_between_two_nodes_that_is_gone_for_good_ends_the_job_naming_both(lab3, cut, count):
    """The launcher still reaches all of them. (Up to 32,768 elements go in pairs, of which nodes 1 and 2 are none.)"""
    job = lab3.popen("env", f"HVD_LIBRARY={LIBHVD}", HVDRUN, "-np", "3", "--grace", str(GRACE), "-H",
                     "node1:1,node2:1,node3:1", *PYTHON, program("reduces.py"), str(count))
    read_until(job.stdout, "up", 3)
    lab3.cut(*(f"node{rank + 1}" for rank in cut))
    try:
        with Within(14):
            out, err = job.communicate(timeout=PATIENCE)
    finally:
        lab3.heal()
    assert job.returncode == 1, err
    assert re.match(r"hvdrun: rank \d on node\d \(pid \d+\) exited with code 1", own_words(err)[0]), err
    # Whoever ends first tells it, in the words of one of the two.
    first = re.match(r"hvdrun: rank (\d)", own_words(err)[0])[1]
    words = "\n".join(line for line in err.splitlines() if line.startswith((f"[{first}]<stderr>:", "hvdrun:   ")))
    told = re.search(r"rank (\d): ALLREDUCE 'gradient': lost the connection to node \d \(rank (\d)\)", words) or \
        re.search(r"hvd rank (\d): .*the control connection to rank (\d) broke", words) or \
        re.search(r"the control connection between rank (\d) and rank (\d) broke", words)
    assert told and {int(told[1]), int(told[2])} == set(cut), err
    assert lab3.wait_for_no_processes() == []


def test_a_full_disk_of_the_log_directory_is_told_once_and_the_ranks_go_on(lab3):
    script = (f"mkdir -p /tmp/logs && mount -t tmpfs -o size=64k tmpfs /tmp/logs && "
              f"exec {HVDRUN} -np 4 -H node1:2,node2:2 --output-filename /tmp/logs/job seq 20000")
    try:
        done = lab3.run("sh", "-c", script)
        kept = lab3.run("sh", "-c", "cat /tmp/logs/job/rank.?/stdout | wc -l").stdout
    finally:
        lab3.run("umount", "-l", "/tmp/logs")
    assert done.returncode == OUTPUT_FAILED, done.stderr
    for rank in range(4):
        assert done.stdout.count(f"[{rank}]<stdout>:") == 20000
    assert done.stderr.count("No space left on device") == 1
    assert "the job goes on" in done.stderr and "not all of their output could be kept" in done.stderr
    assert int(kept) > 0
    assert lab3.wait_for_no_processes() == []


def test_a_reader_that_is_gone_stops_the_job_as_it_would_a_filter(lab3):
    loud = "trap '' TERM; while :; do echo y; done"
    job = lab3.popen("bash", "-c", f"{HVDRUN} -np 2 --grace {GRACE} -H node1:1,node2:1 sh -c \"{loud}\" | head -n 1; "
                                   "exit ${PIPESTATUS[0]}")
    assert re.fullmatch(r"\[[01]\]<stdout>:y\n", job.stdout.readline())
    with Within(2 + GRACE):
        out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 128 + signal.SIGPIPE, err
    assert lab3.wait_for_no_processes() == []


def test_hosts_that_cannot_be_used_are_all_named_before_any_rank_runs(make_lab):
    lab = make_lab(4)
    known = lab.path("launcher", "/root/.ssh/known_hosts")
    where = known if known.exists() else lab.path("launcher", "/etc/ssh/ssh_known_hosts")
    lines = where.read_text()
    key1, key2 = (re.search(rf"^node{i}\S* (.*)$", lines, re.M)[1] for i in (1, 2))
    where.write_text(lines.replace(key2, key1))
    lab.path("node3", "/root/.ssh/authorized_keys").write_text("")
    lab.cut("node4")
    for limit in growing(30):
        with Within(limit):
            done = lab.run(HVDRUN, "--start-timeout", limit, "-H", "node1,node2,node3,node4,nowhere", "sh", "-c", "echo ran")
        if "hvdrun: node1: " not in done.stderr:
            break
    lab.heal()
    assert (done.returncode, done.stdout) == (UNREACHABLE, "")
    said = {name: [line for line in own_words(done.stderr) if line.startswith(f"hvdrun: {name}: ")]
            for name in ("node1", "node2", "node3", "node4", "nowhere")}
    assert {name: len(lines) for name, lines in said.items()} == \
        {"node1": 0, "node2": 1, "node3": 1, "node4": 1, "nowhere": 1}, done.stderr
    assert "CHANGED" in said["node2"][0]
    assert re.search("refused|denied", said["node3"][0])
    assert re.search("(?i)timed out|timeout|no answer|no route", said["node4"][0])
    assert "resolve" in said["nowhere"][0]
    assert lab.wait_for_no_processes("launcher", "node1", "node2", "node3") == []


@pytest.mark.parametrize("command, words", [(["no-such-python", "train.py"], "no such program: 'no-such-python' in PATH"),
                                            ([*PYTHON, "no_such.py"], f"no such script: '{ROOT}/no_such.py'")])
def test_what_is_to_be_run_and_is_not_there_is_told_once(lab3, command, words):
    done = lab3.run(HVDRUN, "-np", "4", "-H", "node1:2,node2:2", *command)
    assert (done.returncode, done.stdout) == (NO_PROGRAM, "")
    assert sum(words in line for line in own_words(done.stderr)) == 1, done.stderr
    assert re.search(r"node[12]", done.stderr)
    assert lab3.wait_for_no_processes() == []


@pytest.mark.parametrize("name, text, arguments, place, words", [
    ("hosts", "a slots=2\nb slots=two\n", ["--hostfile", "{}", "true"], ":2:3: ", "expected a number"),
    ("job.yaml", "nodeCount: 2\nnodecount: [\n", ["-f", "{}"], ":3:1: ", "not YAML: a '[' or '{', or a quote, has no end"),
    ("job.json", '{"properties": {"nodeCount": "two"}}', ["-f", "{}"], ":1:30: ", "expected"),
    ("job.json", '{"properties": {\n  "nodeCount": 2,\n}}', ["-f", "{}"], ":3:1: ", "a comma before '}'"),
    ("settings.yaml", "params:\n  cycle_time_ms: soon\n", ["-np", "1", "--config-file", "{}", "true"], ":2:18: ", "expected a number"),
    (None, None, ["-H", "a:2,b:x", "true"], "host list, column 5: ", "expected a number of slots"),
])
def test_a_malformed_text_is_told_with_its_place_and_nothing_is_started(tmp_path, marker, name, text, arguments, place, words):
    path = tmp_path / (name or "none")
    if name:
        path.write_text(text)
    done = hvdrun(*[argument.replace("{}", str(path)) for argument in arguments], env=env_with(marker))
    assert (done.returncode, done.stdout) == (USAGE, ""), done.stderr
    assert (f"{path}{place}" if name else place) in done.stderr, done.stderr
    assert words in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_each_promise_that_is_kept_elsewhere_is_tested_there():
    for file, beginning in re.findall(r"(test_\w+\.py)::(test_\w+?)\.\.\.", __doc__):
        assert f"\ndef {beginning}" in (pathlib.Path(__file__).parent / file).read_text(), beginning
    for beginning in re.findall(r"[| ,](test_\w+?)\.\.\.", __doc__):
        assert any(name.startswith(beginning) for name in globals()) or beginning == "test_a_connection_that_"
