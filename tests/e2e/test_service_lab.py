"""The Azure tutorial's job on a cluster of four hosts, from its cluster to its files, by the service's commands."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from hvdrun import HVDRUN, without_copies
from job_files import TUTORIAL, make_share
from lab import wait_until
from patience import PATIENCE

NODES = [f"node{i}" for i in range(1, 5)]

# Keras-free, with the command line of the tutorial's script; it goes on when the test has seen what it must.
TRAIN = """#!/bin/bash
share=${2#--dir=}
echo "50000 train samples"
until [ -e "$share/go" ]; do sleep 0.05; done
for epoch in 1 2; do printf 'Epoch %s/2\\n' $epoch; printf ' 1/2 [=>.] - loss: 2.3\\r 2/2 [==] - loss: 1.9\\r\\n'; done
[ $HOROVOD_RANK = 0 ] && mkdir -p "$share/saved_models" && echo model > "$share/saved_models/keras_cifar10_trained_model.h5"
echo "Test accuracy: 0.75"
"""


@pytest.fixture
def share(lab4):
    folder = make_share(lab4.shared / "share", TRAIN)
    yield folder
    shutil.rmtree(folder)


def test_the_tutorial_from_cluster_to_files(lab4, share):
    if not TUTORIAL.exists():
        pytest.skip("the tutorial's job.json is not here (HVD_BATCHAI_JOBS names its folder)")
    job_file = share / "job.json"
    job_file.write_bytes(TUTORIAL.read_bytes())
    cluster = share / "cluster.json"
    cluster.write_text(json.dumps({"hosts": NODES, "size": "STANDARD_NC6", "mountRoot": str(share),
                                   "env": {"PATH": f"{share}/bin:/usr/bin:/bin"}}))

    def ok(*arguments):
        done = lab4.run(HVDRUN, *arguments)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    assert ok("cluster", "add", "nc6cluster", "-f", cluster) == ok("cluster", "show", "nc6cluster") == (
        "Name        Resource Group    Workspace    VM Size       State      Idle    Running    Preparing    Leaving    Unusable\n"
        "----------  ----------------  -----------  ------------  -------  ------  ---------  -----------  ---------  ----------\n"
        "nc6cluster  hvdrun            default      STANDARD_NC6  steady        4          0            0          0           0\n")
    # As in the tutorial: az batchai job create --cluster nc6cluster --name cifar_distributed --config-file job.json ...
    ok("submit", "--cluster", "nc6cluster", "--name", "cifar_distributed", "-f", job_file, "--storage-account-name", "mystorageaccount")
    stream = lab4.popen(HVDRUN, "logs", "-f", "--file-name", "stdout.txt", "cifar_distributed")
    assert stream.stdout.readline() == "50000 train samples\n"
    assert ok("show", "cifar_distributed", "--query", "executionState") == "running\n"
    assert ok("cluster", "show", "nc6cluster", "--query", "nodeStateCounts") == (
        '{\n  "idleNodeCount": 0,\n  "leavingNodeCount": 0,\n  "preparingNodeCount": 0,\n  "runningNodeCount": 4,\n'
        '  "unusableNodeCount": 0\n}\n')
    names = sorted([*(f"execution-{n}.log" for n in NODES), *(f"stderr-job_prep-{n}.txt" for n in NODES), "stderr.txt",
                    *(f"stdout-job_prep-{n}.txt" for n in NODES), "stdout.txt"])
    files = ok("files", "cifar_distributed").splitlines()
    assert re.fullmatch(r"Name {21,}Type +Size  Modified", files[0]) and re.fullmatch(r"-+  ------  -+  -{25}", files[1])
    rows = [line.split() for line in files[2:]]
    assert [row[0] for row in rows] == names
    assert all(row[1] == "file" and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", row[3]) for row in rows)
    nodes = ok("nodes", "cifar_distributed").splitlines()
    assert [line.split()[:2] for line in nodes[2:]] == [[n, lab4.addr(n)] for n in NODES]
    assert ok("exec", "cifar_distributed", "--node", "node3", "--", "hostname") == "node3\n"
    (share / "myshare/cifar/go").touch()
    text, _ = stream.communicate(timeout=PATIENCE)
    assert stream.returncode == 0 and text.count("Epoch 2/2") == 4 and text.count("Test accuracy: 0.75") == 4
    assert lab4.run(HVDRUN, "wait", "cifar_distributed").returncode == 0
    assert ok("show", "cifar_distributed", "--query", "executionInfo.exitCode") == "0\n"
    assert (share / "myshare/cifar/saved_models/keras_cifar10_trained_model.h5").read_text() == "model\n"
    segment = ok("show", "cifar_distributed", "--query", "jobOutputDirectoryPathSegment").strip()
    assert sorted(f.name for f in (share / "myshare/cifar" / segment / "stdouterr").iterdir()) == names
    assert lab4.wait_for_no_processes(*NODES) == []
    ok("rm", "cifar_distributed")
    ok("cluster", "remove", "nc6cluster")


def test_hosts_whose_supervisor_was_killed_are_given_to_another_job_when_its_ranks_have_gone(lab4, share):
    cluster = share / "cluster.json"
    cluster.write_text(json.dumps({"hosts": NODES[:2], "defaults": {"reconnectTimeout": 4, "grace": 1}}))
    first, second = share / "first.yaml", share / "second.yaml"
    first.write_text(f"nodeCount: 2\ncommand: touch {share}/begun-$HVD_RANK; sleep 1000\n")
    second.write_text("nodeCount: 2\ncommand: ps -e -o args | grep -c '[s]leep 1000'; true\n")

    def ok(*arguments):
        done = lab4.run(HVDRUN, *arguments)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    ok("cluster", "add", "pair", "-f", cluster)
    number = json.loads(ok("submit", "--json", "-f", first))["id"]
    ok("submit", "-f", second)
    wait_until(lambda: (share / "begun-0").exists() and (share / "begun-1").exists(), "it runs")
    looks = {p.pid: p.args for p in lab4.ps("launcher") if re.search(rf"supervise \S+ {number}$", p.args)}
    (supervisor,) = without_copies(looks)
    os.kill(supervisor, 9)
    wait_until(lambda: "SupervisorLost" in ok("show", "first", "--json"), "its death is noticed")
    assert lab4.run(HVDRUN, "wait", "second").returncode == 0
    assert ok("logs", "second") == "0\n0\n"
    assert lab4.wait_for_no_processes(*NODES) == []
    ok("cluster", "remove", "pair")


def test_a_host_that_is_gone_is_left_out_and_the_jobs_that_had_it_wait(lab4, share):
    cluster = share / "cluster.json"
    cluster.write_text(json.dumps({"hosts": NODES[:2], "defaults": {"startTimeout": 10, "reconnectTimeout": 4, "grace": 1}}))
    pair, single = share / "pair.yaml", share / "single.yaml"
    pair.write_text("nodeCount: 2\ncommand: hostname\n")
    single.write_text("nodeCount: 1\ncommand: hostname\n")

    def ok(*arguments):
        done = lab4.run(HVDRUN, *arguments)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def says(*arguments):
        return lambda: "node2: no answer from" in (text := ok(*arguments)) and text

    ok("cluster", "add", "pair", "-f", cluster)
    ok("submit", "-f", pair, "--name", "before")
    assert lab4.run(HVDRUN, "wait", "before").returncode == 0
    lab4.cut("node2")
    ok("submit", "-f", pair, "--name", "both")
    waiting = wait_until(says("show", "both"), "it waits again")
    assert re.search(r"it waits for 2 nodes of cluster pair: 1 of 2 are idle, and no more than 1 are in service.*\n"
                     r"node2: no answer .*; no job gets it before \d{4}-\d\d-\d\dT[\d:+]+\n", waiting), waiting
    assert says("cluster", "show", "pair")()
    ok("submit", "-f", single, "--name", "one")
    assert lab4.run(HVDRUN, "wait", "one").returncode == 0
    assert ok("logs", "one") == "node1\n"
    assert ok("show", "both", "--field", "executionState") == "queued\n"
    ok("cluster", "resume", "pair", "node2")  # the user takes it for repaired, and is wrong
    stream = lab4.popen(HVDRUN, "wait", "both", stderr=subprocess.PIPE)
    told = wait_until(says("show", "both"), "it waits once more")
    assert "no more than 1" in told
    lab4.heal()
    ok("cluster", "resume", "pair", "node2")
    _, words = stream.communicate(timeout=PATIENCE)
    assert stream.returncode == 0, words
    assert re.search(r"job both began to run at .*\n.*job both was queued at .*\n.*it waits for 2 nodes.*\nhvdrun:   node2: no answer", words), words
    assert sorted(ok("logs", "both").split()) == ["node1", "node2"]

    # The same where it goes while the job is prepared.
    prepared = share / "prepared.yaml"
    prepared.write_text(f"nodeCount: 2\nprepare: touch {share}/prepares-$(hostname); while [ ! -e {share}/go ]; do sleep 0.1; done\n"
                        "command: hostname\n")
    ok("submit", "-f", prepared, "--name", "prepared")
    wait_until(lambda: all((share / f"prepares-{node}").exists() for node in NODES[:2]), "it is prepared")
    lab4.cut("node2")
    wait_until(lambda: "no job gets it before" in ok("show", "prepared"), "it waits again")
    lab4.heal()
    (share / "go").touch()
    ok("cluster", "resume", "pair", "node2")
    done = lab4.run(HVDRUN, "wait", "prepared")
    assert done.returncode == 0, done.stderr
    assert sorted(ok("logs", "prepared").split()) == ["node1", "node2"]
    assert lab4.wait_for_no_processes(*NODES[:2]) == []
    ok("cluster", "remove", "pair")


def test_a_job_does_not_wait_for_a_host_that_no_job_has_ever_reached(lab4):
    added = lab4.run(HVDRUN, "cluster", "add", "typo", "-H", "node3,nodd4")
    assert added.returncode == 0, added.stderr
    (lab4.shared / "typo.yaml").write_text("nodeCount: 2\ncommand: 'true'\n")
    assert lab4.run(HVDRUN, "submit", "-f", lab4.shared / "typo.yaml").returncode == 0
    done = lab4.run(HVDRUN, "wait", "typo")
    assert done.returncode == 241 and "A node could not be reached: nodd4; hvdrun check -H nodd4 says more" in done.stderr, done.stderr
    lab4.run(HVDRUN, "cluster", "remove", "typo")


def test_what_is_mounted_for_a_job_on_other_hosts_goes_with_the_processes_that_have_it(lab4, share):
    cluster = share / "cluster.json"
    cluster.write_text(json.dumps({
        "hosts": NODES[:2], "defaults": {"reconnectTimeout": 4, "grace": 1},
        "fileSystems": [{"name": "work", "type": "bind", "source": str(share / "myshare")}, {"name": "fast", "type": "tmpfs", "source": "tmpfs"}]}))
    job = share / "mounting.yaml"
    job.write_text("nodeCount: 2\nmounts: {work: , fast: }\n"
                   "command: cd $AZ_BATCHAI_JOB_MOUNT_ROOT; touch fast/mine work/begun-$HVD_RANK; sleep 1000\n")
    added = lab4.run(HVDRUN, "cluster", "add", "mounting", "-f", cluster)
    assert added.returncode == 0, added.stderr
    submitted = lab4.run(HVDRUN, "submit", "-f", job)
    assert submitted.returncode == 0, submitted.stderr
    wait_until(lambda: all((share / f"myshare/begun-{rank}").exists() for rank in (0, 1)), "it runs")
    sleepers = wait_until(lambda: [p.pid for p in lab4.ps("node2") if p.args == "sleep 1000"], "it sleeps")
    assert "/mounts/work" in pathlib.Path(f"/proc/{sleepers[0]}/mountinfo").read_text()
    for process in lab4.ps("node2"):  # agent, guardian and all; none can unmount anything
        try:
            os.kill(process.pid, 9)
        except ProcessLookupError:
            pass
    assert lab4.run(HVDRUN, "wait", "mounting").returncode != 0
    assert lab4.wait_for_no_processes(*NODES[:2]) == []
    for node in NODES[:2]:
        first = lab4.ps(node, everything=True)[0]
        assert "/mounts/" not in pathlib.Path(f"/proc/{first.pid}/mountinfo").read_text()
    assert sorted(f.name for f in (share / "myshare").iterdir()) == ["begun-0", "begun-1", "cifar"]
    lab4.run(HVDRUN, "cluster", "remove", "mounting")
