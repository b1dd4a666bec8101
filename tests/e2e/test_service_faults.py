"""Whose fault it is that a job of the service does not run: its own, a node's, a new installation's, a full disk's."""

import re

import pytest

from service import Service
from ways import EXECUTES


@pytest.fixture
def service(tmp_path, marker):
    service = Service(tmp_path, marker)
    yield service
    assert service.end() == {}


def test_a_job_whose_own_way_to_the_nodes_is_wrong_fails_alone(service):
    """Before, it had every node of the cluster out of service in seconds, and again each minute."""
    service.cluster(hosts=["a", "b", "c", "d"], defaults={"rsh": EXECUTES})
    service.submit("nodeCount: 4\ncommand: 'true'\n", "--name", "first")
    assert service("wait", "first").returncode == 0
    service.submit("nodeCount: 2\ncommand: 'true'\n", "--name", "wrong", "--rsh", "false")
    told = service.wait_for(lambda: (text := service.ok("show", "wrong")).count("this job does not get it before") == 4 and text,
                            "it has tried all nodes")
    assert service.counts() == {"idle": 4}
    assert "it does not get those for a while that it could not reach; hvdrun cluster resume lab lets it try them at once" in told
    service.submit("nodeCount: 4\ncommand: echo done\n", "--name", "good")
    assert service("wait", "good").returncode == 0
    assert service.state_of("wrong") == "queued"
    with service.records() as records:  # as if the minute were over
        records.execute("UPDATE avoided_node SET unusable_until_ms = 1")
    (service.state / "hvdrun/service/locks/wake").write_text("")
    done = service("wait", "wrong")
    assert done.returncode == 241
    assert "The job has reached none of its nodes, and the nodes are not at fault" in service.show("wrong", "executionInfo.errors.0.message")
    assert "unusable" not in service.counts()


def test_a_node_that_is_really_broken_is_taken_out_of_service_and_the_job_goes_on_elsewhere(service):
    broken = service.path / "broken"
    service.cluster(hosts=["a", "b"], defaults={"rsh": f"sh -c '[ $0 = a ] && [ -e {broken} ] && exit 1; exec \"$@\"' {{host}}"})
    service.submit("nodeCount: 2\ncommand: 'true'\n", "--name", "first")
    assert service("wait", "first").returncode == 0
    broken.touch()
    service.submit("command: echo done\n", "--name", "goes-on")
    assert service("wait", "goes-on").returncode == 0
    assert service.show("goes-on", "nodes.0.nodeId") == "b"
    assert service.counts() == {"idle": 1, "unusable": 1}
    assert re.search(r"^a: rsh: .*; no job gets it before ", service.ok("cluster", "show", "lab"), re.M)
