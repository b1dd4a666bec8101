"""Nodes of a cluster of Ray on this machine."""

from typing import Any

from patience import PATIENCE


def add_node(cluster: Any) -> Any:
    """A node with two CPUs, once Ray knows it, however slow the machine is."""
    node = cluster.add_node(wait=False, num_cpus=2)
    cluster.wait_for_nodes(timeout=PATIENCE)
    return node
