"""Job files on several hosts, over SSH: the job of the Azure tutorial's shape on four, and nodes that fail."""

import json
import os
import re
import signal

import pytest
from hvdrun import HVDRUN, ROOT, read_until
from job_files import TUTORIAL, make_share
from lab import wait_until
from patience import PATIENCE

HOSTS = "node1,node2,node3,node4"

# Keras-free, with the command line of the tutorial's script.
TRAIN = """#!/bin/bash
echo "50000 train samples"
for epoch in 1 2; do printf 'Epoch %s/2\\n' $epoch; printf ' 1/2 [=>.] - loss: 2.3\\r 2/2 [==] - loss: 1.9\\r'; done
echo "rank $HOROVOD_RANK of $HOROVOD_SIZE on $(hostname) with $*"
[ $HOROVOD_RANK = 0 ] && mkdir -p "${2#--dir=}/saved_models" && echo model > "${2#--dir=}/saved_models/keras_cifar10_trained_model.h5"
exit 0
"""


@pytest.fixture
def share(lab4):
    """A file share that all nodes see, and stubs of what the tutorial's job calls."""
    folder = make_share(lab4.shared / f"share-{len(list(lab4.shared.iterdir()))}", TRAIN)
    (folder / "work").mkdir()
    return folder


def arguments(share, file, *more, hosts=HOSTS):
    return [HVDRUN, "-f", file, "-H", hosts, "--mount-root", share, "--storage-account-name", "mystorageaccount",
            "-x", f"PATH={share}/bin:/usr/bin:/bin", *more]


def kept_in(folder):
    (found,) = [f for f in folder.rglob("stdouterr") if f.is_dir()]
    return {f.name: f.read_bytes().decode() for f in found.iterdir()}


def no_folder_is_left(lab):
    return [str(p) for node in range(1, lab.nodes + 1) for p in lab.path(f"node{node}", "/tmp").glob("hvdrun-job-*")] == []


def test_the_tutorials_job_runs_unedited_on_four_hosts(lab4, share):
    if not TUTORIAL.exists():
        pytest.skip("the tutorial's job.json is not here (HVD_BATCHAI_JOBS names its folder)")
    file = share / TUTORIAL.name  # where the lab's hosts see it: they have a /tmp of their own
    file.write_bytes(TUTORIAL.read_bytes())
    done = lab4.run(*arguments(share, file))
    assert done.returncode == 0, done.stderr
    kept = kept_in(share)
    assert sorted(kept) == sorted([
        *(f"execution-node{i}.log" for i in range(1, 5)), *(f"stderr-job_prep-node{i}.txt" for i in range(1, 5)), "stderr.txt",
        *(f"stdout-job_prep-node{i}.txt" for i in range(1, 5)), "stdout.txt"])
    for i in range(1, 5):
        assert kept[f"stdout-job_prep-node{i}.txt"] == (
            "apt update\napt install mpi-default-dev mpi-default-bin -y\npip install keras horovod\n")
        assert f"rank {i - 1} of 4 on node{i} with" in kept["stdout.txt"]
        assert "'job environment preparation' succeeded on" in kept[f"execution-node{i}.log"]
    assert re.search(r"with /tmp/hvdrun-job-\w+/mounts/myshare/cifar/cifar_cnn_distributed.py --dir=/tmp/hvdrun-job-\w+/mounts/"
                     r"myshare/cifar", kept["stdout.txt"])
    assert kept["stdout.txt"].count("Epoch 2/2") == 4
    assert (share / "myshare/cifar/saved_models/keras_cifar10_trained_model.h5").read_text() == "model\n"
    segment = str(next(share.rglob("stdouterr")).relative_to(share))
    assert re.fullmatch(r"myshare/cifar/[0-9a-f-]{36}/[^/]+/workspaces/[^/]+/experiments/[^/]+/jobs/tutorial-cifar/[0-9a-f-]{36}/"
                        r"stdouterr", segment)
    assert lab4.wait_for_no_processes("node1", "node2", "node3", "node4") == []
    assert no_folder_is_left(lab4)


def test_a_mount_that_one_node_lacks_is_told_with_its_name(lab4, share):
    only = lab4.path("node3", "/tmp") / "not-on-others"
    only.mkdir(exist_ok=True)
    file = share / "job.yaml"
    file.write_text("nodeCount: 2\ncommand: 'true'\nmounts: {data: /tmp/not-on-others}\n")
    done = lab4.run(*arguments(share, file, hosts="node3,node4"))
    assert done.returncode == 242
    assert "JobSetUpFailed: setting up on node4 " in done.stderr
    assert "the mount 'data': there is no directory /tmp/not-on-others on node4" in done.stderr
    assert no_folder_is_left(lab4)


def test_where_this_host_lacks_the_mount_the_files_are_kept_here(lab4, share):
    for node in ("node1", "node2"):
        (lab4.path(node, "/tmp") / "nodes-only").mkdir(exist_ok=True)
    file = share / "job.yaml"
    file.write_text("nodeCount: 2\ncommand: echo $HVD_RANK > $AZ_BATCHAI_JOB_MOUNT_ROOT/data/seen; echo done\n"
                    "mounts: {data: /tmp/nodes-only}\noutput: $AZ_BATCHAI_JOB_MOUNT_ROOT/data/logs\n")
    done = lab4.run(*arguments(share, file))
    assert done.returncode == 0, done.stderr
    assert (lab4.path("node2", "/tmp") / "nodes-only/seen").read_text() == "1\n"
    (said,) = re.findall(r"is kept in (\S+)", done.stderr)
    assert "/.local/state/hvdrun/jobs/job/" in said
    assert (lab4.path("launcher", said) / "stdout.txt").read_text() == "done\ndone\n"
    assert not (lab4.path("launcher", "/tmp") / "nodes-only").exists()


def test_more_nodes_than_the_job_needs_are_left_alone(lab4, share):
    file = share / "job.yaml"
    file.write_text("nodeCount: 2\nprocessCount: 3\ncommand: echo $(hostname)\n")
    done = lab4.run(*arguments(share, file, "--no-tags"))
    assert sorted(done.stdout.split()) == ["node1", "node1", "node2"]


def test_a_node_that_dies_in_the_preparation_ends_the_job(lab4, share):
    file = share / "job.yaml"
    file.write_text("nodeCount: 2\nprepare: echo preparing; sleep 1000\ncommand: 'true'\n")
    job = lab4.popen(*arguments(share, file, "--reconnect-timeout", 0))
    read_until(job.stdout, "preparing", 2)
    agents = [p for p in lab4.ps("node2") if "sleep 1000" not in p.args and "agent" in p.args]
    os.kill(agents[0].pid, signal.SIGKILL)  # the other one ends what is left
    assert job.wait(PATIENCE) == 243
    assert "node2" in job.stderr.read()
    assert lab4.wait_for_no_processes("node1", "node2") == []
    assert no_folder_is_left(lab4)


def test_tensorflow_roles_know_each_other_by_address(lab4, share):
    # A parameter server is ended with the workers, and they are to give it the time to speak.
    (share / "spoken").mkdir()
    (share / "bin/python").write_text(f"#!/bin/bash\necho $TF_CONFIG; mktemp -p {share}/spoken >&2\n"
                                      f"until [ $(ls {share}/spoken | wc -l) = 3 ]; do sleep 0.05; done\n")
    done = lab4.run(*arguments(share, ROOT / "configs/jobs/tensorflow.json", "--no-tags", "--container", "none"))
    assert done.returncode == 0, done.stderr
    configs = [json.loads(line) for line in done.stdout.splitlines()]
    first, second = lab4.addr("node1"), lab4.addr("node2")
    for config in configs:
        assert [w.split(":")[0] for w in config["cluster"]["worker"]] == [first, second]
        assert [w.split(":")[0] for w in config["cluster"]["ps"]] == [first]
        assert len(set(config["cluster"]["worker"] + config["cluster"]["ps"])) == 3
    assert sorted((c["task"]["type"], c["task"]["index"]) for c in configs) == [("ps", 0), ("worker", 0), ("worker", 1)]


def test_ctrl_c_leaves_nothing_on_any_host(lab4, share):
    file = share / "job.yaml"
    file.write_text("nodeCount: 4\ncommand: echo running; sleep 1000\n")
    job = lab4.popen(*arguments(share, file))
    read_until(job.stdout, "running", 4)
    os.kill(lab4.pid_of(job), signal.SIGINT)
    assert job.wait(PATIENCE) == 130
    assert lab4.wait_for_no_processes("node1", "node2", "node3", "node4") == []
    wait_until(lambda: no_folder_is_left(lab4), "a folder is left")
