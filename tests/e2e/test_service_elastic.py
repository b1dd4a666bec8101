"""Elastic jobs in the queue: nodes that become idle join them, and drained ones leave them with notice."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from hvdrun import HVDRUN, ROOT, read_until, without_copies
from lab import wait_until
from patience import PATIENCE

SCRIPT = str(ROOT / "tests/support/offered_steps.py")
NODES = ["node1", "node2", "node3"]
# Holds the records as soon as the job has three nodes, until its standard input ends.
HOLDER = f"""import sqlite3, sys, time
records = sqlite3.connect(sys.argv[1], timeout={PATIENCE}, isolation_level=None)
print("ready", flush=True)
while records.execute("SELECT count(*) FROM node WHERE job = ?", [int(sys.argv[2])]).fetchone()[0] < 3:
    time.sleep(0.02)
records.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


class Queue:
    """A cluster of three nodes, an elastic job that trains on it, and others."""

    def __init__(self, lab):
        self.lab = lab
        self.share = pathlib.Path(lab.shared)
        self.gates = {name: self.share / f"gate-{name}" for name in ("other", "train")}
        for gate in self.gates.values():
            gate.unlink(missing_ok=True)
        cluster = self.share / "trio.json"
        cluster.write_text(json.dumps({"hosts": NODES, "defaults": {"reconnectTimeout": 4, "grace": 1}}))
        self.ok("cluster", "add", "trio", "-f", cluster)

    def ok(self, *arguments):
        done = self.lab.run(HVDRUN, *arguments)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def submit(self, name, text):
        file = self.share / f"{name}.yaml"
        file.write_text(f"name: {name}\n{text}\n")
        return json.loads(self.ok("submit", "--json", "-f", file))["id"]

    def occupy(self, name, nodes):
        return self.submit(name, f"nodeCount: {nodes}\ncommand: until [ -e {self.gates['other']} ]; do sleep 0.05; done")

    def train(self, least=1, most=3):
        self.number = self.submit("train", f"minNodes: {least}\nmaxNodes: {most}\nprepare: echo ready\npython: {sys.executable}\n"
                                           f"script: {SCRIPT}\nargs: ['1', {self.gates['train']}]")

    def show(self, field, job="train"):
        return self.ok("show", job, "--field", field).strip()

    def words(self):
        """What hvdrun has said of its jobs."""
        return "".join(log.read_text() for log in self.lab.path("launcher", "/root/.local/state/hvdrun").rglob("hvdrun.log"))

    def nodes(self):
        return [node["nodeId"] for node in json.loads(self.show("nodes"))]

    def await_size(self, size):
        """Until so many ranks train together; before the first begins there is no output."""
        wait_until(lambda: len(re.findall(rf"size {size} rank", self.lab.run(HVDRUN, "logs", "train").stdout)) >= size, f"{size} ranks")

    def states(self):
        return {node["nodeId"]: (node["state"], node["job"]) for node in json.loads(self.ok("cluster", "show", "trio", "--json"))["nodes"]}

    def supervisor(self):
        looks = {p.pid: p.args for p in self.lab.ps("launcher") if re.search(rf"supervise \S+ {self.number}$", p.args)}
        (pid,) = without_copies(looks)
        return pid

    def is_idle(self):
        wait_until(lambda: all(state == ("idle", None) for state in self.states().values()), "all nodes are idle")
        assert self.lab.wait_for_no_processes(*NODES) == []

    def folders(self):
        return [str(p) for node in NODES for p in self.lab.path(node, "/tmp").glob("hvdrun-job-*")]

    def close(self):
        for gate in self.gates.values():
            gate.write_text("")
        for job in json.loads(self.ok("ps", "--all", "--json")):
            self.ok("rm", str(job["id"]))
        self.ok("cluster", "remove", "trio")


@pytest.fixture
def queue(lab3):
    queue = Queue(lab3)
    yield queue
    queue.close()


def test_a_job_begins_with_one_node_gets_the_others_and_loses_a_drained_one(queue):
    queue.occupy("other", 2)
    wait_until(lambda: queue.show("executionState", "other") == "running", "the other one runs")
    queue.train()
    queue.await_size(1)
    assert queue.nodes() == ["node3"]
    assert queue.show("minNodes") == "1" and queue.show("maxNodes") == "3" and queue.show("currentNodeCount") == "1"
    assert "1 of 1-3" in queue.ok("ps")
    queue.gates["other"].write_text("")  # its nodes become idle, and nobody waits for them
    queue.await_size(3)
    assert sorted(queue.nodes()) == NODES
    assert {state for state, _ in queue.states().values()} == {"running"}
    queue.ok("cluster", "drain", "trio", "node3")  # it has rank 0 of all
    wait_until(lambda: queue.nodes() == ["node1", "node2"], "the drained one has left")
    assert queue.states()["node3"] == ("unusable", None)
    queue.await_size(2)
    queue.gates["train"].write_text("")
    assert queue.lab.run(HVDRUN, "wait", "train").returncode == 0
    out = queue.ok("logs", "train")
    ends = re.findall(r"ended at (\d+) as rank (\d) of 2", out)
    assert len(ends) == 2 and len({step for step, _ in ends}) == 1, out  # the script has checked that no step is missing
    assert sorted(line.split()[0] for line in queue.ok("files", "train").splitlines() if "execution" in line) == [
        f"execution-{node}.log" for node in NODES]
    queue.ok("cluster", "resume", "trio", "node3")
    queue.is_idle()
    assert queue.folders() == []


def test_a_job_grows_while_another_process_holds_the_records(queue):
    queue.occupy("other", 2)
    wait_until(lambda: queue.show("executionState", "other") == "running", "the other one runs")
    queue.train()
    queue.await_size(1)
    holder = queue.lab.popen(sys.executable, "-c", HOLDER, "/root/.local/state/hvdrun/service/jobs.db", queue.number, stdin=subprocess.PIPE)
    try:
        read_until(holder.stdout, "ready")
        queue.gates["other"].write_text("")
        read_until(holder.stdout, "held")
        queue.await_size(3)
    finally:
        _, err = holder.communicate(timeout=PATIENCE)
    assert holder.returncode == 0, err
    wait_until(lambda: queue.lab.run(HVDRUN, "logs", "train", "--rank", 2).returncode == 0, "its files are recorded")
    queue.gates["train"].write_text("")
    assert queue.lab.run(HVDRUN, "wait", "train").returncode == 0
    assert len(re.findall(r"ended at \d+ as rank \d of 3", queue.ok("logs", "train"))) == 3


def test_a_drained_node_of_a_job_that_never_changed_is_its_own_until_the_ranks_have_left(queue):
    queue.train(least=2, most=2)
    queue.await_size(2)
    (first, second) = queue.nodes()
    queue.ok("cluster", "drain", "trio", second)
    wait_until(lambda: f"{second} is to be given back" in queue.words(), "the job has heard of it")
    assert queue.nodes() == [first, second]
    assert queue.states()[second][1] == queue.number
    queue.ok("cluster", "resume", "trio", second)
    queue.gates["train"].write_text("")
    assert queue.lab.run(HVDRUN, "wait", "train").returncode == 0
    assert len(re.findall(r"ended at \d+ as rank \d of 2", queue.ok("logs", "train"))) == 2


def test_a_job_that_waits_comes_before_one_that_would_grow(queue):
    queue.occupy("other", 1)
    wait_until(lambda: queue.show("executionState", "other") == "running", "it runs")
    queue.train()
    queue.await_size(2)
    queue.submit("waiting", f"nodeCount: 1\ncommand: until [ -e {queue.gates['train']} ]; do sleep 0.05; done")
    queue.gates["other"].write_text("")
    wait_until(lambda: queue.show("executionState", "waiting") == "running", "it has the node")
    assert len(queue.nodes()) == 2
    queue.gates["train"].write_text("")
    for job in ("waiting", "train"):
        assert queue.lab.run(HVDRUN, "wait", job).returncode == 0
    queue.is_idle()


def test_a_job_that_is_stopped_or_whose_supervisor_is_killed_while_nodes_join_keeps_none(queue):
    for kill in (False, True):
        queue.gates["other"].unlink(missing_ok=True)
        other = queue.occupy("other", 2)
        wait_until(lambda: queue.show("executionState", "other") == "running", "the other one runs")
        queue.train()
        queue.await_size(1)
        queue.gates["other"].write_text("")
        wait_until(lambda: len(queue.nodes()) == 3, "it gets the others")
        if kill:
            os.kill(queue.supervisor(), 9)
            wait_until(lambda: "SupervisorLost" in queue.ok("show", "train", "--json"), "its death is noticed")
        else:
            queue.ok("stop", "train")
            assert "JobTerminated" in queue.ok("show", "train", "--json")
        queue.is_idle()
        queue.ok("rm", str(other))
        queue.ok("rm", "train")


def test_a_node_that_dies_stays_the_jobs_until_it_is_drained(queue):
    queue.train()
    queue.await_size(3)
    queue.lab.cut("node2")
    queue.await_size(2)
    assert queue.states()["node2"] == ("running", queue.number)
    queue.ok("cluster", "drain", "trio", "node2")
    wait_until(lambda: "node2" not in queue.nodes(), "it is given back")
    queue.lab.heal()
    queue.gates["train"].write_text("")
    assert queue.lab.run(HVDRUN, "wait", "train").returncode == 0
    queue.ok("cluster", "resume", "trio", "node2")
    queue.is_idle()


def test_more_nodes_than_the_cluster_has_are_refused_with_their_place(queue):
    file = queue.share / "many.yaml"
    file.write_text("minNodes: 4\nmaxNodes: 9\ncommand: 'true'\n")
    done = queue.lab.run(HVDRUN, "submit", "-f", file, timeout=PATIENCE)
    assert done.returncode == 240
    assert "many.yaml:1:11: the job needs at least 4 nodes, and there are 3 hosts" in done.stderr, done.stderr
