"""Real Ray on this machine's loopback: two nodes of two CPUs each. They take seconds to start, so they serve all cases."""

import os
import shutil
import tempfile

import pytest
from patience import PATIENCE
from ray_nodes import add_node

# Ray asks these when it is imported, and its processes inherit them.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # everything listens on loopback
    "RAY_AUTH_MODE": "disabled",  # else it leaves a token in the home folder
    "RAY_COLOR_PREFIX": "0",
    # On a busy machine a node, or a worker that begins, is slow and not dead; and memory is used by others too.
    "RAY_health_check_failure_threshold": "100",
    "RAY_worker_register_timeout_seconds": str(PATIENCE),
    "RAY_agent_register_timeout_ms": str(PATIENCE * 1000),
    "RAY_raylet_start_wait_time_s": str(PATIENCE),
    "RAY_memory_monitor_refresh_ms": "0",
}


@pytest.fixture(scope="session")
def nodes():
    os.environ.update(SETTINGS)
    ray = pytest.importorskip("ray", reason="ray is not installed here")
    from ray.cluster_utils import Cluster

    os.makedirs("/tmp/ray", exist_ok=True)  # Ray notes the cluster's address there, and makes the folder only for its own files
    folder = tempfile.mkdtemp(prefix="hvd-ray-")  # a short path: Ray has sockets in it
    head = {"num_cpus": 2, "num_gpus": 4, "include_dashboard": False, "temp_dir": folder}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    try:
        add_node(nodes)
        ray.init(address=nodes.address, log_to_driver=False)
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster(nodes):
    return nodes.address
