"""Jobs in pods, as far as that can be tried without Kubernetes: hosts of a lab stand for the pods, each with an agent as a
manifest has it and a hosts file for the cluster's names. The manifests themselves: test_manifest.py."""

import os
import pathlib
import re
import signal
import subprocess

import pytest

from hvdrun import BIN, HVDRUN, ROOT, read_until
from lab import wait_until
from patience import PATIENCE, growing

pytestmark = pytest.mark.usefixtures("lab_possible")
AGENT = str(BIN / "hvdrun-agent")
NAME = "job-launcher-0-0.job"
PORT = 4711


class Pods:
    """hvdrun on the lab's launcher, and agents on its nodes."""

    def __init__(self, lab):
        self.lab = lab
        self.key = str(lab.shared / "key")
        self.processes = []
        pathlib.Path(self.key).write_text("5e" * 32 + "\n")
        os.chmod(self.key, 0o400)

    def hvdrun(self, *words, nodes=2, key=None, command=()):
        return self._start(HVDRUN, *command, "--launcher", "kubernetes", "--nodes", nodes, "--key-file", key or self.key, *words,
                           host="launcher")

    def agent(self, index, *, host=None, name=NAME, key=None, timeout=PATIENCE):
        return self._start("env", f"JOB_COMPLETION_INDEX={index}", AGENT, "call", "kubernetes", "--key-file",
                           key or self.key, "--start-timeout", timeout, f"{name}:{PORT}", host=host or f"node{index + 1}")

    def name_launcher(self, *hosts):
        for host in hosts or ("node1", "node2"):
            done = self.lab.run("sh", "-c", f"grep -q {NAME} /etc/hosts || echo {self.lab.addr('launcher')} {NAME} >>/etc/hosts",
                                host=host)
            assert done.returncode == 0, done.stderr

    def forget_launcher(self):
        for host in ("node1", "node2"):
            done = self.lab.run("sh", "-c", f"text=$(grep -v {NAME} /etc/hosts); echo \"$text\" >/etc/hosts", host=host)
            assert done.returncode == 0, done.stderr

    def _start(self, *words, host):
        process = self.lab.popen(*map(str, words), host=host)
        self.processes.append(process)
        return process

    def outcome(self, process):
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err


@pytest.fixture
def pods(lab2):
    these = Pods(lab2)
    these.name_launcher()
    yield these
    for process in these.processes:
        if process.poll() is None:
            process.kill()
            process.wait(PATIENCE)
    assert lab2.wait_for_no_processes() == []


def test_ranks_are_in_the_pods_by_their_index_whoever_calls_first(pods):
    launcher = pods.hvdrun("-np", 3, "sh", "-c", "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $(hostname)")
    read_until(launcher.stderr, "waiting at port 4711 for the agents of 2 pods")
    agents = [pods.agent(1), pods.agent(0)]
    code, out, err = pods.outcome(launcher)
    assert code == 0, err
    assert sorted(out.splitlines()) == ["[0]<stdout>:0 of 3, 0 of 2 on node1", "[1]<stdout>:1 of 3, 1 of 2 on node1",
                                        "[2]<stdout>:2 of 3, 0 of 1 on node2"]
    assert [pods.outcome(agent)[0] for agent in agents] == [0, 0]


def test_ranks_reach_each_other(pods):
    launcher = pods.hvdrun("-np", 4, "--min", "4", "--max", "64K", "--iters", "3", command=("bench", "allreduce"))
    agents = [pods.agent(0), pods.agent(1)]
    code, _, err = pods.outcome(launcher)
    assert code == 0, err
    assert [pods.outcome(agent)[0] for agent in agents] == [0, 0]


def test_a_name_and_a_launcher_that_come_late_are_waited_for(pods):
    pods.forget_launcher()
    agents = [pods.agent(0), pods.agent(1)]
    for agent in agents:
        read_until(agent.stderr, f"waiting for hvdrun at {NAME}:{PORT} \\({NAME}: ")
    pods.name_launcher("node1")
    late = pods.agent(0, host="node1")  # its name is known, and nobody listens there
    read_until(late.stderr, f"waiting for hvdrun at {NAME}:{PORT} \\(connect to .*refused")
    late.terminate()
    assert late.wait(PATIENCE) == 128 + signal.SIGTERM
    launcher = pods.hvdrun("sh", "-c", "echo here")
    read_until(launcher.stderr, "waiting at port")
    pods.name_launcher("node2")
    code, out, err = pods.outcome(launcher)
    assert (code, sorted(out.splitlines())) == (0, ["[0]<stdout>:here", "[1]<stdout>:here"]), err
    assert [pods.outcome(agent)[0] for agent in agents] == [0, 0]


def test_a_name_that_never_comes_is_one_line(pods):
    code, _, err = pods.outcome(pods.agent(0, name="nobody.job", timeout=5))
    assert code == 1
    assert re.search(r"cannot call hvdrun at nobody.job:4711 within the start timeout \(nobody.job: .+\); does it run", err)
    assert err.count("\n") <= 2  # one before it, that it waits


def test_pods_that_never_call_are_counted(pods):
    for limit in growing(20):
        agent = pods.agent(1)
        read_until(agent.stderr, f"waiting for hvdrun at {NAME}:{PORT}")  # it calls again and again
        launcher = pods.hvdrun("--start-timeout", limit, "true")
        code, _, err = pods.outcome(launcher)
        assert code == 241
        pods.outcome(agent)
        if "of 2 pods of Kubernetes 2 did not start" not in err:
            break
    assert "of 2 pods of Kubernetes 1 did not start within the start timeout; do they run" in err


def test_the_first_failure_is_named_and_its_code_is_the_job_s(pods):
    launcher = pods.hvdrun("sh", "-c", "[ $RANK = 0 ] && exec sleep 600; exit 7")
    agents = [pods.agent(0), pods.agent(1)]
    code, _, err = pods.outcome(launcher)
    assert code == 7
    assert re.search(r"rank 1 on node2 \(pid \d+\) exited with code 7", err)
    # Else the failure of the nodes' Job could end hvdrun's pod before it has reported.
    assert [pods.outcome(agent)[0] for agent in agents] == [0, 0]


def test_ranks_know_neither_the_key_nor_where_it_is(pods):
    launcher = pods.hvdrun("sh", "-c", "for pid in /proc/[0-9]*; do tr '\\0' '\\n' <$pid/environ; tr '\\0' ' ' <$pid/cmdline; done")
    agents = [pods.agent(0), pods.agent(1)]
    code, out, err = pods.outcome(launcher)
    assert code == 0, err
    assert "hvdrun-agent call" in out
    assert pods.key not in out and "5e" * 16 not in out
    for agent in agents:
        pods.outcome(agent)


def test_a_second_agent_of_an_index_is_refused(pods):
    launcher = pods.hvdrun("sh", "-c", "echo here")
    read_until(launcher.stderr, "waiting at port")
    both = [pods.agent(0), pods.agent(0, host="node2")]
    read_until(launcher.stderr, "it is agent 0 on 'node[12]', which has called already or is not ours")
    refused = wait_until(lambda: next((agent for agent in both if agent.poll() is not None), None), "none of them ends")
    code, _, err = pods.outcome(refused)
    assert code == 1
    assert re.search(r"refuses this agent, number 0 .*has another agent this number\?\n", err)
    other = pods.agent(1, host="node1" if refused is both[0] else "node2")
    code, out, err = pods.outcome(launcher)
    assert code == 0, err
    assert [pods.outcome(agent)[0] for agent in both if agent is not refused] + [pods.outcome(other)[0]] == [0, 0]


def test_another_key_is_refused_on_both_sides(pods):
    other = pods.lab.shared / "other"
    other.write_text("a7" * 32)
    other.chmod(0o400)
    launcher = pods.hvdrun("true")
    read_until(launcher.stderr, "waiting at port")
    code, _, err = pods.outcome(pods.agent(0, key=str(other)))
    assert code == 1 and "have both the same key file" in err
    launcher.send_signal(signal.SIGTERM)
    code, _, err = pods.outcome(launcher)
    assert code == 128 + signal.SIGTERM
    assert "a call from" in err and "is refused" in err


@pytest.mark.parametrize("text, mode, words", [
    ("5e" * 32, 0o444, "is open to others; its mode is to be 0400"),
    ("5e" * 31, 0o400, "does not hold 64 hex digits"),
    (None, 0, "No such file"),
])
def test_a_key_file_that_is_no_good_is_one_line(pods, text, mode, words):
    key = pods.lab.shared / "bad"
    if text is not None:
        key.write_text(text)
        key.chmod(mode)
    for process, expected in ((pods.agent(0, key=str(key)), 1), (pods.hvdrun("true", key=str(key)), 240)):
        code, _, err = pods.outcome(process)
        assert code == expected and words in err and err.count("\n") == 1, err
    key.unlink(missing_ok=True)


def running_job(pods):
    launcher = pods.hvdrun("--grace", 1, "sh", "-c", "trap '' TERM; echo runs; sleep 600 & wait; wait")
    agents = [pods.agent(0), pods.agent(1)]
    read_until(launcher.stdout, "runs", 2)
    return launcher, agents


@pytest.mark.parametrize("victim", ["agent", "launcher"])
def test_nothing_is_left_when_one_is_killed(pods, victim):
    launcher, agents = running_job(pods)
    os.kill(pods.lab.pid_of(agents[1] if victim == "agent" else launcher), signal.SIGKILL)
    code, _, err = pods.outcome(launcher)
    assert code != 0
    if victim == "agent":
        assert "node2" in err
    for agent in agents:
        pods.outcome(agent)
    assert pods.lab.wait_for_no_processes() == []


def test_a_pod_that_is_killed_as_a_whole_is_lost_with_a_word_on_who_knows_why(pods):
    launcher, agents = running_job(pods)
    # So the kernel kills a pod that is short of memory: none of its processes sees another one die, and none is left.
    whole = set()
    while new := {process.pid for process in pods.lab.ps("node2")} - whole:
        for pid in new:
            os.kill(pid, signal.SIGSTOP)
        whole |= new
    for pid in whole:
        os.kill(pid, signal.SIGKILL)
    code, _, err = pods.outcome(launcher)
    assert code == 243
    assert "node node2 was lost, with rank 1" in err and "; kubectl describe pod says whether it was OOMKilled" in err
    for agent in agents:
        pods.outcome(agent)


def test_a_pod_that_is_told_to_end_ends_the_job_with_a_word(pods):
    launcher, agents = running_job(pods)
    os.kill(pods.lab.pid_of(agents[1]), signal.SIGTERM)
    code, _, err = pods.outcome(launcher)
    assert code == 243
    assert "hvdrun: the agent on node2 ends, with rank 1: it got SIGTERM\n" in err
    for agent in agents:
        pods.outcome(agent)


def test_sigterm_to_the_launcher_s_pod_stops_the_ranks(pods):
    launcher, agents = running_job(pods)
    os.kill(pods.lab.pid_of(launcher), signal.SIGTERM)
    code, _, err = pods.outcome(launcher)
    assert code == 128 + signal.SIGTERM, err
    for agent in agents:
        pods.outcome(agent)


@pytest.mark.parametrize("words, said", [
    (["--launcher", "kubernetes", "true"], "needs --nodes N and --key-file FILE"),
    (["--launcher", "kubernetes", "--nodes", "2", "--key-file", "k", "-np", "1", "true"], "leaves some of --nodes 2 without"),
    (["--launcher", "kubernetes", "--nodes", "2", "--key-file", "k", "-H", "a", "true"], "without -H"),
    (["--launcher", "kubernetes", "--nodes", "2", "--key-file", "k", "--mpi", "true"], "exclude each other"),
    (["--nodes", "2", "true"], "are for --launcher kubernetes"),
    (["check", "--launcher", "kubernetes", "--nodes", "2", "--key-file", "k"], "check cannot reach pods"),
])
def test_what_cannot_be_is_one_line(words, said):
    done = subprocess.run([HVDRUN, *words], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT)
    assert done.returncode == 240 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("words, said", [
    (["--key-file", "/nowhere", "x:1"], "No such file"),
    (["--key-file", "/nowhere"], "expected: hvdrun-agent call kubernetes"),
    (["--start-timeout", "x", "n:1"], "expected seconds"),
    (["--key-file", "/nowhere", "n:1", "more"], "one word too many"),
])
def test_an_agent_s_wrong_words_are_one_line(words, said):
    done = subprocess.run([AGENT, "call", "kubernetes", *words], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
