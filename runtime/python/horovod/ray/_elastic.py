"""Elastic jobs of RayExecutor: each call of run() is a job of hvdrun, whose ranks come and go with Ray's nodes.

An actor on each node starts the agents of the ranks there. Those of the first actors call hvdrun together, as in other
jobs; those of later ones join it. Where an actor is lost, its agents end, and hvdrun goes on with the others.
"""

import dataclasses
import pathlib
import sys
import tempfile
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

import ray

from horovod.ray import _node, _rank
from horovod.ray._launched import END_S, Launched, reason_of, words_of
from horovod.ray._nodes import Node as RayNode
from horovod.ray._nodes import RayHostDiscovery, nodes_with_room
from horovod.ray._params import ElasticParams
from horovod.runner._agent import JoinOrder, Order
from horovod.runner._job import make_payload, results_of
from horovod.runner._launch import Launch

_WHO = "horovod.ray.RayExecutor"
# How often the discovery is asked, in seconds.
_LOOK_S = 1.0
# What an earlier job had is free a moment after its end. Before that, fewer ranks would find room than may run.
_FREE_S = 3.0
# The seconds in which nothing is started where an actor was lost: least, most. It is twice as long each time.
_COOLDOWN_S = (10.0, 600.0)
# The time in seconds to learn what the ranks returned, when hvdrun has ended.
_RESULTS_S = 60.0


class _Cooldown:
    """_Cooldown says on which nodes nothing is started for a while."""

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s, self._most_s = least_s, most_s
        self._times: Dict[str, Tuple[float, float]] = {}  # by node: the end of its time, and how long it was

    def note_loss(self, node: str, now: float) -> None:
        _, last_s = self._times.get(node, (0.0, self._least_s / 2))
        length_s = min(max(2 * last_s, self._least_s), self._most_s)
        self._times[node] = now + length_s, length_s

    def is_over(self, node: str, now: float) -> bool:
        return now >= self._times.get(node, (0.0, 0.0))[0]


@dataclasses.dataclass
class _Place:
    """An actor, and the ranks that it is for."""

    node: str
    address: str
    seats: int
    actor: Any
    started: Any  # a reference that is there when the actor is
    is_up: bool = False
    is_leaving: bool = False
    agents: Any = None  # a reference that is there when its agents have ended; None: it has no agents yet
    results: List[Any] = dataclasses.field(default_factory=list)  # references, for each rank
    is_killed: bool = False

    def kill(self) -> None:
        self.is_killed = True
        ray.kill(self.actor)


def _is_there(reference: Any) -> bool:
    return bool(ray.wait([reference], timeout=0)[0])


class _Job:
    """One call."""

    def __init__(self, adapter: "ElasticAdapter", calls: List[Tuple[bytes, bytes]], logs: Any) -> None:
        self._adapter = adapter
        self._params = adapter.params
        self._calls = ray.put(calls)
        self._logs = logs
        self._places: List[_Place] = []
        self._gone: List[_Place] = []  # whose agents have ended, or which were lost
        self._cooldown = _Cooldown(*(self._params.cooldown_range or _COOLDOWN_S))
        self._launched: Optional[Launched] = None
        self._join_file: Optional[pathlib.Path] = None
        self._is_to_end = threading.Event()

    def run(self) -> List[bytes]:
        """What the ranks returned that were there at the end, as they pickled it, in rank order."""
        with tempfile.TemporaryDirectory(prefix="hvd-ray-") as folder:  # mode 0700
            self._join_file = pathlib.Path(folder) / "join"
            try:
                self._gather()
                self._launch()
                self._follow()
                return self._results()
            finally:
                self._close()

    def end(self) -> None:
        """Ends the job, on another thread than run()'s."""
        self._is_to_end.set()

    def _check_wanted(self) -> None:
        if self._is_to_end.is_set():
            raise RuntimeError(f"{_WHO}.shutdown() was called")

    # ---- the actors ----

    def _gather(self) -> None:
        """Waits for actors with ranks enough. TimeoutError: Ray has no room for them, or does not start them in time."""
        params = self._params
        begun = time.monotonic()
        while True:
            self._check_wanted()
            offered = self._adapter.offered()
            now = time.monotonic()
            wanted = self._capped(sum(offered.values()))
            room = sum(min(place.free, offered.get(place.address, 0)) for place in self._rooms())
            if wanted >= params.least and (self._seats() + room >= wanted or now - begun > _FREE_S):
                self._grow(offered, now)
            self._look_at_places()
            waiting = [place for place in self._places if not place.is_up]
            up = sum(place.seats for place in self._places if place.is_up)
            if up >= params.least and (not waiting or now - begun > self._adapter.settings.timeout_s):
                return
            if now - begun > params.elastic_timeout:
                raise TimeoutError(
                    f"Ray has started {up} of the {params.least} ranks that the job needs to begin after "
                    f"{params.elastic_timeout:g} s (elastic_timeout); it offers {sum(offered.values())} slots on "
                    f"{len(offered)} host{'' if len(offered) == 1 else 's'}. Shut down what holds the rest, or give the "
                    "cluster more nodes"
                )
            self._wait([place.started for place in waiting])

    def _rooms(self) -> List[RayNode]:
        return nodes_with_room(self._params.cpus_per_worker, self._params.gpus_per_worker)

    def _capped(self, ranks: int) -> int:
        return min(ranks, self._params.most) if self._params.most else ranks

    def _seats(self, address: Optional[str] = None) -> int:
        return sum(place.seats for place in self._places
                   if not place.is_leaving and address in (None, place.address))  # fmt: skip

    def _grow(self, offered: Dict[str, int], now: float) -> None:
        """Starts actors where more ranks are offered than there are."""
        for node in self._rooms():
            missing = offered.get(node.address, 0) - self._seats(node.address)
            most = self._capped(self._seats() + missing) - self._seats()
            count = min(missing, most, node.free)
            if count > 0 and self._cooldown.is_over(node.id, now):
                self._places.append(self._place_on(node, count))

    def _place_on(self, node: RayNode, seats: int) -> _Place:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        params = self._params
        groups = {"agents": 1, **{f"rank{number}": 1 for number in range(seats)}}
        actor = ray.remote(concurrency_groups=groups)(_node.Node).options(
            num_cpus=seats * params.cpus_per_worker,
            num_gpus=seats * params.gpus_per_worker,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        ).remote(seats, params.gpus_per_worker)  # fmt: skip
        return _Place(node.id, node.address, seats, actor, actor.network.remote())

    def _shrink(self, offered: Dict[str, int]) -> None:
        """Makes ranks leave that are not offered any more, the last actor of a host first."""
        for place in reversed(self._places):
            if not place.is_leaving and self._seats(place.address) > offered.get(place.address, 0):
                place.is_leaving = True
                if place.agents is None:
                    place.kill()
                else:
                    place.actor.leave.remote()

    def _look_at_places(self) -> None:
        """Looks which actors have come up, and which are lost or have done their work."""
        for place in list(self._places):
            try:
                if not place.is_up and _is_there(place.started):
                    ray.get(place.started)
                    place.is_up = True
                if place.agents is None or not _is_there(place.agents):
                    continue
                ray.get(place.agents)
            except Exception as error:
                self._note_loss(place, reason_of(error))
            self._places.remove(place)
            self._gone.append(place)
        for place in self._gone:
            if not place.is_killed and all(_is_there(result) for result in place.results):
                place.kill()

    def _note_loss(self, place: _Place, why: str) -> None:
        if place.is_leaving:
            return
        self._cooldown.note_loss(place.node, time.monotonic())
        if self._launched is not None and self._join_order() is None:  # the job has not begun, or is ending
            self._launched.tell(f"an actor of Ray has ended: {why}")
        elif self._launched is None and len(self._places) == 1:
            raise RuntimeError(f"{_WHO}: an actor of Ray on {place.address} has ended: {why}")

    def _wait(self, references: List[Any]) -> None:
        """Waits a moment, or until one of them is there."""
        if references:
            ray.wait(references, num_returns=1, timeout=_LOOK_S)
        else:
            self._is_to_end.wait(_LOOK_S)

    # ---- the job ----

    def _launch(self) -> None:
        first = [place for place in self._places if place.is_up]
        count = sum(place.seats for place in first)
        launch = Launch(
            num_proc=count,
            words=self._words(),
            environment=self._adapter.environment,
            executable=None,
            is_local=False,  # a node that joins may be anywhere
            largest_result=0,
            payload=make_payload(_rank.serve, (), {}),
            is_elastic=True,
        )

        def start_agents(order: Order) -> None:
            begun = 0
            for place in first:
                self._start(place, order, begun)
                begun += place.seats

        self._launched = Launched(launch, self._adapter.own_settings, start_agents)
        self._launched.start()

    def _start(self, place: _Place, order: Any, begun: int) -> None:
        actor = place.actor
        place.results = [actor.serve.options(concurrency_group=f"rank{number}").remote(number, self._calls, self._logs)
                         for number in range(place.seats)]  # fmt: skip
        place.agents = actor.run_agents.options(concurrency_group="agents").remote(order, begun)

    def _words(self) -> List[str]:
        """hvdrun's options."""
        params, settings = self._params, self._adapter.settings
        words = ["--min-np", str(params.least), "--join-file", str(self._join_file),
                 "--start-timeout", str(settings.timeout_s), "--elastic-timeout", str(params.elastic_timeout)]  # fmt: skip
        if params.most:
            words += ["--max-np", str(params.most)]
        if params.reset_limit is not None:
            words += ["--reset-limit", str(params.reset_limit)]
        return words + words_of(settings, params.gpus_per_worker)

    def _follow(self) -> None:
        """Until hvdrun has ended: ranks join and leave as the discovery says."""
        while self._launched.is_alive():
            self._launched.join(_LOOK_S)
            self._check_wanted()
            self._look_at_places()
            order = self._join_order()
            if order is None or not self._launched.is_alive():
                continue
            offered = self._adapter.offered()
            self._shrink(offered)
            self._grow(offered, time.monotonic())
            for place in self._places:
                if place.is_up and place.agents is None and not place.is_leaving:
                    self._start(place, order, 0)
        if self._launched.error is not None:
            raise self._launched.error

    def _join_order(self) -> Optional[JoinOrder]:
        """What an agent needs to join the job; None: it has not begun, or is ending."""
        try:
            return JoinOrder(self._join_file.read_text(encoding="ascii"))
        except FileNotFoundError:
            return None

    def _results(self) -> List[bytes]:
        outcome = self._launched.outcome
        if outcome.code:
            results_of(_WHO, [*outcome.replies, None], outcome.code, outcome.last_words, has_all=False)  # raises
        found: List[Tuple[int, bytes]] = []
        pending = [result for place in [*self._gone, *self._places] for result in place.results]
        for result in ray.wait(pending, num_returns=len(pending), timeout=_RESULTS_S)[0]:
            try:
                found += [value for value in [ray.get(result)] if value is not None]
            except Exception:
                pass  # its actor is lost, and the job has done without it
        if len(found) < self._params.least:
            raise RuntimeError(
                f"{_WHO}: {len(found)} of {self._params.least} ranks left a result; the others ended with code 0 before their "
                f"function returned, as os._exit(0) does\n{outcome.last_words}"
            )
        return [value for _, value in sorted(found)]

    def _close(self) -> None:
        if self._launched is not None and self._launched.is_alive():
            self._launched.end(f"{_WHO}: the call was given up")
        for place in [*self._gone, *self._places]:
            place.kill()


class ElasticAdapter:
    """From start() to shutdown(), which may be called on another thread than run()."""

    def __init__(self, settings: Any, params: ElasticParams) -> None:
        self.settings = settings
        self.params = params
        # The user's variables for the ranks, and the driver's own that are meant for all of them.
        self.environment: Dict[str, str] = {}
        self.own_settings: Dict[str, str] = {}
        self._nodes = RayHostDiscovery(bool(params.gpus_per_worker), params.cpus_per_worker, params.gpus_per_worker)
        self._discovery = settings.discovery or self._nodes
        self._offered: Optional[Dict[str, int]] = None
        self._make: Optional[bytes] = None
        self._job: Optional[_Job] = None
        self._is_idle = threading.Event()
        self._is_idle.set()

    def start(self, make: Optional[bytes], environment: Dict[str, str], settings: Dict[str, str]) -> None:
        """Waits until there are hosts enough. With `make`, the ranks of each call make an object first.

        TimeoutError: there are not."""
        self._make, self.environment, self.own_settings = make, environment, settings
        deadline = time.monotonic() + self.params.elastic_timeout
        while (slots := sum(self.offered().values())) < self.params.least:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"Ray has offered {slots} of the {self.params.least} slots that the job needs for "
                    f"{self.params.elastic_timeout:g} s (elastic_timeout); give the cluster more nodes, or lower min_workers"
                )
            time.sleep(_LOOK_S)

    def offered(self) -> Dict[str, int]:
        """The slots of each host, by the address that Ray knows it by. While the discovery fails they stay as they were."""
        try:
            found = self._discovery.find_available_hosts_and_slots()
            whole = self._nodes.find_available_hosts_and_slots() if None in found.values() else {}
        except Exception as error:
            if self._offered is None:
                raise
            print(f"{_WHO}: the hosts stay as they are, since the discovery fails: {error}", file=sys.stderr)
            return self._offered
        self._offered = {host: whole.get(host, 0) if slots is None else int(slots) for host, slots in found.items()}
        return self._offered

    def run(self, kind: str, payload: bytes, logs: Any) -> List[bytes]:
        """What each rank of a job returned, as it was pickled there."""
        make = [] if self._make is None else [(_rank.MAKE, self._make)]
        self._job = _Job(self, [*make, (kind.encode(), payload)], logs)
        self._is_idle.clear()
        try:
            return self._job.run()
        finally:
            self._job = None
            self._is_idle.set()

    def shutdown(self) -> None:
        """Ends a job that still runs."""
        job = self._job
        if job is not None:
            job.end()
            self._is_idle.wait(END_S)
