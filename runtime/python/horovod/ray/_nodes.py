"""Which nodes Ray has now, and how many ranks they have room for."""

import dataclasses
from typing import Dict, List

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


def nodes_with_room(cpus: float, gpus: float) -> List[Node]:
    """The nodes that are alive."""
    import ray
    from ray._private.state import available_resources_per_node

    free = available_resources_per_node()
    alive = [node for node in ray.nodes() if node["Alive"]]
    return [Node(node["NodeID"], node["NodeManagerAddress"], _room(free.get(node["NodeID"], {}), cpus, gpus)) for node in alive]


class RayHostDiscovery(HostDiscovery):
    """RayHostDiscovery offers all nodes of Ray, as if nothing else ran there.

    Args:
        use_gpu: ranks need GPUs.
        cpus_per_slot, gpus_per_slot: what Ray reserves for each rank.
    """

    def __init__(self, use_gpu: bool = False, cpus_per_slot: float = 1, gpus_per_slot: float = 1) -> None:
        self._cpus = cpus_per_slot
        self._gpus = gpus_per_slot if use_gpu else 0

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        """Returns the slots of each host, by the address that Ray knows it by."""
        import ray

        found: Dict[str, int] = {}
        for node in ray.nodes():
            slots = _room(node["Resources"], self._cpus, self._gpus) if node["Alive"] else 0
            if slots:
                found[node["NodeManagerAddress"]] = found.get(node["NodeManagerAddress"], 0) + slots
        return found
