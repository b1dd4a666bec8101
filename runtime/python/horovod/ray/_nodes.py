"""Which nodes Ray has now, and how many ranks they have room for."""

import dataclasses
from typing import Any, Dict, List, Mapping, Tuple

from horovod.runner.elastic.discovery import HostDiscovery


def _room(resources: Dict[str, float], cpus: float, gpus: float) -> int:
    """For how many ranks these resources are enough."""
    parts = [int(resources.get(name, 0) / amount) for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount > 0]
    return min(parts) if parts else int(resources.get("CPU", 0))


@dataclasses.dataclass
class Node:
    """One node of Ray. Several may have one address, as those of a cluster on one machine do."""

    id: str
    address: str
    free: int  # ranks that it has room for, beside what runs there


def alive_nodes(cpus: float, gpus: float) -> List[Node]:
    """The nodes that are alive, with their room for ranks of so many CPUs and GPUs."""
    import ray
    from ray._private.state import available_resources_per_node

    free = available_resources_per_node()
    return [Node(node["NodeID"], node["NodeManagerAddress"], _room(free.get(node["NodeID"], {}), cpus, gpus))
            for node in ray.nodes() if node["Alive"]]  # fmt: skip


def with_addresses(hosts: Mapping[str, Any]) -> Tuple[Dict[str, Any], List[str]]:
    """The hosts that Ray has, by their addresses; and the names of others. A host is called by either in `hosts`."""
    import ray

    addresses: Dict[str, str] = {}
    for node in ray.nodes():
        if node["Alive"]:
            addresses[node["NodeManagerAddress"]] = addresses[node["NodeManagerHostname"]] = node["NodeManagerAddress"]
    known = {addresses[host]: slots for host, slots in hosts.items() if host in addresses}
    return known, [host for host in hosts if host not in addresses]


class RayHostDiscovery(HostDiscovery):
    """RayHostDiscovery offers all nodes of Ray, as if nothing else ran there.

    Args:
        use_gpu: ranks need GPUs.
        cpus_per_slot, gpus_per_slot: what Ray reserves for each rank.
    """

    def __init__(self, use_gpu: bool = False, cpus_per_slot: float = 1, gpus_per_slot: float = 1) -> None:
        self.use_gpu = use_gpu
        self.cpus_per_slot = cpus_per_slot
        self.gpus_per_slot = gpus_per_slot

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        """Returns the slots of each host, by the address that Ray has for it."""
        import ray

        found: Dict[str, int] = {}
        gpus = self.gpus_per_slot if self.use_gpu else 0
        for node in ray.nodes():
            slots = _room(node["Resources"], self.cpus_per_slot, gpus) if node["Alive"] else 0
            if slots:
                found[node["NodeManagerAddress"]] = found.get(node["NodeManagerAddress"], 0) + slots
        return found
