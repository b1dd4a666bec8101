"""Where the ranks of a RayExecutor run: Ray's placement groups."""

import dataclasses
from typing import Any, Dict, List, Tuple

from horovod.ray._params import Params

_LARGER_GROUP = "Give it a bundle for each rank beside the caller's, or pass use_current_placement_group=False"


def create_placement_group(
    resources_per_bundle: Dict[str, float], num_bundles: int, pg_timeout: float, pg_strategy: str, name: str = ""
) -> Tuple[Any, List[Dict[str, float]]]:
    """A placement group, of that name, and its bundles. TimeoutError: Ray has not reserved it after `pg_timeout` seconds."""
    import ray

    bundles = [dict(resources_per_bundle) for _ in range(num_bundles)]
    group = ray.util.placement_group(bundles, strategy=pg_strategy, name=name)
    ready: List[Any] = []
    try:
        ready, _ = ray.wait([group.ready()], timeout=pg_timeout)
    finally:  # also after Ctrl-C
        if not ready:
            ray.util.remove_placement_group(group)
    if not ready:
        nodes = sum(1 for node in ray.nodes() if node["Alive"])
        each = ", each on a node of its own" if pg_strategy == "STRICT_SPREAD" else ""
        raise TimeoutError(
            f"Ray has not reserved {num_bundles} times {_text(resources_per_bundle)} ({pg_strategy}{each}) after "
            f"{pg_timeout:g} s; free now: {_text(ray.available_resources())}, of {_text(ray.cluster_resources())} on "
            f"{nodes} node{'s' if nodes != 1 else ''}. Ask for fewer workers, shut down what holds the rest, or give the "
            "cluster more nodes"
        )
    return group, bundles


def _room(bundle: Dict[str, float], needed: Dict[str, float], most: int) -> int:
    """For how many ranks a bundle is large enough, `most` at most."""
    return min([most, *(int(bundle.get(name, 0) / amount) for name, amount in needed.items() if amount)])


def _text(resources: Dict[str, float]) -> str:
    told = [f"{resources[name]:g} {name}" for name in ("CPU", "GPU") if resources.get(name)]
    return ", ".join(told) or "nothing"


@dataclasses.dataclass
class Place:
    """Where one actor runs, and how many ranks it starts."""

    options: Dict[str, Any]
    seats: int


class Strategy:
    """A whole host for each actor (`num_hosts`), or a bundle for each rank, packed on few hosts (`num_workers`)."""

    def __init__(self, settings: Any, params: Params) -> None:
        self._timeout_s = settings.placement_group_timeout_s
        self._params = params
        self._created_placement_group = False
        self.placement_group: Any = None
        self.where = "though it has reserved their places"  # of the actors, for errors

    def reserve(self) -> List[Place]:
        """The places of the actors, in the order of their ranks.

        TimeoutError as create_placement_group. ValueError: the caller's placement group is too small."""
        import ray

        params = self._params
        current = ray.util.get_current_placement_group() if params.use_current_placement_group else None
        if current is not None:
            needed = self._resources(1)
            room = sum(_room(bundle, needed, params.ranks) for bundle in current.bundle_specs)
            if room < params.ranks:
                raise ValueError(
                    f"the caller's placement group has room for {room} of {params.ranks} ranks, each with {_text(needed)}: its "
                    f"bundles are {', '.join(_text(bundle) for bundle in current.bundle_specs)}. {_LARGER_GROUP}"
                )
            self.placement_group = current
            self.where = f"in the caller's placement group, of which the caller may use a part. {_LARGER_GROUP}"
            return [self._place(1, -1) for _ in range(params.ranks)]
        bundles, seats = (params.num_hosts, params.num_workers_per_host) if params.num_hosts else (params.ranks, 1)
        kind = "STRICT_SPREAD" if params.num_hosts else "PACK"
        needed = self._resources(seats)
        self.placement_group, _ = create_placement_group(needed, bundles, self._timeout_s, kind, params.group_name)
        self._created_placement_group = True
        return [self._place(seats, index) for index in range(bundles)]

    def _resources(self, seats: int) -> Dict[str, float]:
        return {"CPU": seats * self._params.cpus_per_worker, "GPU": seats * self._params.gpus_per_worker}

    def _place(self, seats: int, bundle: int) -> Place:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        where = PlacementGroupSchedulingStrategy(self.placement_group, bundle, placement_group_capture_child_tasks=False)
        resources = self._resources(seats)
        return Place({"num_cpus": resources["CPU"], "num_gpus": resources["GPU"], "scheduling_strategy": where}, seats)

    def release(self) -> None:
        """Gives back what reserve() has reserved."""
        import ray

        if self._created_placement_group:
            ray.util.remove_placement_group(self.placement_group)
        self.placement_group = None
        self._created_placement_group = False
