"""Job files whose jobs are elastic: hosts that join are prepared as the others were, and cleaned up with them."""

import pathlib
import re
import sys

import pytest

from hvdrun import HVDRUN, hvdrun, read_until
from offered_jobs import SCRIPT, OfferedJob


class Job(OfferedJob):
    """A job file's job with a file of hosts, which its discovery script prints."""

    def __init__(self, lab):
        super().__init__(lab)
        self.mount = pathlib.Path(lab.shared) / "data"
        self.mount.mkdir(exist_ok=True)

    def start(self, text, *flags):
        file = pathlib.Path(self.lab.shared) / "elastic.yaml"
        file.write_text(f"{text}\npython: {sys.executable}\nscript: {SCRIPT}\nargs: ['1', {self.gate}]\n")
        self.job = self.lab.popen(HVDRUN, "-f", file, *flags)

    def script(self, text, *flags):
        self.start(text, "--host-discovery-script", f"cat {self.hosts}", "--discovery-interval", "0.2", *flags)

    def folders(self):
        return sorted(f"node{node}" for node in range(1, self.lab.nodes + 1)
                      if list(self.lab.path(f"node{node}", "/tmp").glob("hvdrun-job-*")))

    def end(self):
        err = super().end()
        assert self.folders() == []
        return err


@pytest.fixture
def job(lab3):
    return Job(lab3)


def test_a_host_that_joins_is_prepared_once_before_its_ranks_and_cleaned_up(job):
    job.set("node1:7 node2")  # the slots say nothing: each node has as many processes
    prepared = job.mount / "prepared"
    prepared.unlink(missing_ok=True)
    job.script("minNodes: 1\nnodeCount: 2\nmaxNodes: 3\nprocessCount: 4\n"
               f"mounts: {{data: {job.mount}}}\n"
               "prepare: cd $AZ_BATCHAI_JOB_MOUNT_ROOT/data && echo $AZ_BATCH_NODE_ID >> prepared")
    job.await_size(4)
    assert sorted(prepared.read_text().split()) == ["node1", "node2"]
    job.set("node1 node2 node3")
    lines = job.await_size(6)
    assert re.search(r"size 6 rank 5 local 1 of 2", lines), lines
    assert sorted(prepared.read_text().split()) == ["node1", "node2", "node3"]
    assert job.folders() == ["node1", "node2", "node3"]
    job.set("node2 node3")
    job.await_size(4)
    err = job.end()
    assert "node3 joins, with ranks 4-5" in err
    assert "cleaning up" not in err


def test_a_host_whose_preparation_fails_is_left_alone_and_the_others_go_on(job):
    job.set("node1 node2")
    job.script("minNodes: 1\nnodeCount: 2\nmaxNodes: 3\nprepare: '[ $AZ_BATCH_NODE_ID != node3 ] || exit 7'\n")
    job.await_size(2)
    job.set("node1 node2 node3")
    told = "".join(read_until(job.job.stderr, "node3 has failed, and gets no new ranks", 1))
    assert "setting up node3, which was to join the job, failed" in told
    assert re.search(r"rank 2 on node3 .* exited with code 7; the others go on without it", told), told
    job.end()


def test_a_lost_node_is_done_without_down_to_min_nodes(job):
    job.start("minNodes: 2\nnodeCount: 3\nmaxNodes: 3\n", "-H", "node1,node2,node3", "--heartbeat", "1",
              "--reconnect-timeout", "4")  # fmt: skip
    job.await_size(3)
    job.lab.cut("node3")
    job.await_size(2)
    job.lab.heal()
    job.end()


@pytest.mark.parametrize("text, place, message", [
    ("minNodes: 3\nmaxNodes: 2\ncommand: 'true'\n", "1:11", "minNodes is 3, more than maxNodes, which is 2"),
    ("minNodes: 0\ncommand: 'true'\n", "1:11", "minNodes"),
    ("nodeCount: 1\nmaxNodes: 0\ncommand: 'true'\n", "2:11", "maxNodes"),
    ("nodeCount: 1\nminNodes: 2\nmaxNodes: 3\ncommand: 'true'\n", "2:11", "nodeCount is 1; expected from minNodes (2) to maxNodes (3)"),
    ("minNodes: 4\nmaxNodes: 5\ncommand: 'true'\n", "1:11", "the job needs at least 4 nodes, and there are 2 hosts"),
    ("nodeCount: 2\nmaxNodes: 5\nprocessCount: 3\ncommand: 'true'\n", "4:10", "3 processes on 2 nodes"),
    ("maxNodes: 5\ncommand: 'true'\n", "1:11", "maxNodes without minNodes or nodeCount"),
    ('{"properties": {"nodeCount": 2, "maxNodes": 3, "stdOutErrPathPrefix": "/x",\n'
     '"customMpiSettings": {"commandLine": "true"}}}', "1:45", "maxNodes: the processes of a job of type mpi start together"),
])  # fmt: skip
def test_what_is_wrong_with_the_numbers_of_nodes_is_told_with_its_place(tmp_path, text, place, message):
    file = tmp_path / "job.yaml"
    file.write_text(text)
    done = hvdrun("-f", file, "-H", "a.invalid,b.invalid")
    assert done.returncode == 240
    assert re.match(rf"hvdrun: \S*job\.yaml:{place}: ", done.stderr) and message in done.stderr, done.stderr


def test_elastic_flags_are_refused_for_a_toolkit_that_cannot(tmp_path):
    file = tmp_path / "job.json"
    file.write_text('{"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/x", "pyTorchSettings": {"pythonScriptFilePath": "x"}}}')
    done = hvdrun("-f", file, "--elastic-restarts", "1")
    assert done.returncode == 240 and "elastic options: the processes of a job of type pytorch" in done.stderr, done.stderr
