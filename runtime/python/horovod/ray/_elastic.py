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
from typing import Any, Callable, Dict, List, Optional, Tuple

import ray

from horovod.ray import _node, _rank
from horovod.ray._launched import END_S, LOGS_S, Launched, reason_of, words_of
from horovod.ray._nodes import Node as RayNode
from horovod.ray._nodes import RayHostDiscovery, alive_nodes, with_addresses
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


def _tell(text: str) -> None:
    print(f"{_WHO}: {text}", file=sys.stderr, flush=True)


class _Cooldown:
    """_Cooldown says on which nodes nothing is started for a while."""

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s, self._most_s = least_s, most_s
        self._times: Dict[str, Tuple[float, float]] = {}  # by node: the end of its time, and how long it was

    def note_loss(self, node: str, now: float) -> float:
        """Returns for how many seconds nothing is started there."""
        _, last_s = self._times.get(node, (0.0, self._least_s / 2))
        length_s = min(max(2 * last_s, self._least_s), self._most_s)
        self._times[node] = now + length_s, length_s
        return length_s

    def is_over(self, node: str, now: float) -> bool:
        return now >= self._times.get(node, (0.0, 0.0))[0]


def _is_there(reference: Any) -> bool:
    return bool(ray.wait([reference], timeout=0, fetch_local=False)[0])


@dataclasses.dataclass
class _Seat:
    """A rank of an actor."""

    agent: Any = None  # a reference that is there when its agent has ended; None: it has none yet
    result: Any = None  # a reference to what the rank returned
    is_leaving: bool = False
    is_over: bool = False

    def stays(self) -> bool:
        return not self.is_leaving and not self.is_over


@dataclasses.dataclass
class _Place:
    """An actor, and the ranks that it is for."""

    node: str
    address: str
    actor: Any
    started: Any  # a reference that is there when the actor is
    made_at: float
    seats: List[_Seat]
    is_up: bool = False
    is_killed: bool = False

    def staying(self) -> List[_Seat]:
        return [seat for seat in self.seats if seat.stays()]

    def is_over(self) -> bool:
        return all(seat.is_over for seat in self.seats)

    def kill(self) -> None:
        self.is_killed = True
        try:
            ray.kill(self.actor)
        except Exception:
            pass  # Ray is gone, and with it the actor


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
        self._last_loss = ""
        self._launched: Optional[Launched] = None
        self._has_begun = False
        self._join_file: Optional[pathlib.Path] = None

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
                if self._launched is not None and self._launched.is_alive():
                    self._launched.end(f"{_WHO}: the call was given up")
                for place in [*self._gone, *self._places]:
                    place.kill()

    # ---- the actors ----

    def _gather(self) -> None:
        """Waits for actors with ranks enough. TimeoutError: Ray has no room for them, or does not start them in time."""
        params = self._params
        begun = time.monotonic()
        while True:
            self._adapter.check_wanted()
            offered, nodes, now = self._adapter.offered(), self._adapter.nodes(), time.monotonic()
            wanted = self._capped(sum(offered.values()))
            room = sum(min(node.free, offered.get(node.address, 0)) for node in nodes)
            if self._places or wanted <= self._seats() + room or now - begun > _FREE_S:
                self._grow(offered, nodes, now)
            self._look_at_places()
            waiting = [place.started for place in self._places if not place.is_up]
            up = sum(len(place.seats) for place in self._places if place.is_up)
            if up >= params.least and not waiting and self._are_all_alive():
                return
            if now - begun > params.elastic_timeout:
                last = f"; the last actor that was lost: {self._last_loss}" if self._last_loss else ""
                raise TimeoutError(
                    f"Ray has started {up} of the {params.least} ranks that the job needs to begin after "
                    f"{params.elastic_timeout:g} s (elastic_timeout); it may use {self._adapter.offer_text()}{last}. Shut down "
                    "what holds the rest, or give the cluster more nodes"
                )
            if waiting:
                ray.wait(waiting, num_returns=1, timeout=_LOOK_S)
            else:
                self._adapter.is_over.wait(_LOOK_S)

    def _are_all_alive(self) -> bool:
        """Looks again at actors that have waited for others."""
        for place in list(self._places):
            try:
                ray.get(place.actor.network.remote(), timeout=self._adapter.settings.timeout_s)
            except Exception as error:
                self._lose(place, reason_of(error))
        return sum(len(place.seats) for place in self._places) >= self._params.least

    def _capped(self, ranks: int) -> int:
        return min(ranks, self._params.most) if self._params.most else ranks

    def _seats(self, address: Optional[str] = None) -> int:
        return sum(len(place.staying()) for place in self._places if address in (None, place.address))

    def _grow(self, offered: Dict[str, int], nodes: List[RayNode], now: float) -> None:
        """Starts actors where more ranks are offered than there are."""
        for node in nodes:
            missing = offered.get(node.address, 0) - self._seats(node.address)
            most = self._capped(self._seats() + max(missing, 0)) - self._seats()
            count = min(missing, most, node.free)
            if count > 0 and self._cooldown.is_over(node.id, now):
                self._places.append(self._place_on(node, count, now))

    def _place_on(self, node: RayNode, count: int, now: float) -> _Place:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        params = self._params
        groups = {f"{kind}{number}": 1 for kind in ("agent", "rank") for number in range(count)}
        actor = ray.remote(concurrency_groups=groups)(_node.Node).options(
            num_cpus=count * params.cpus_per_worker,
            num_gpus=count * params.gpus_per_worker,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        ).remote(count, params.gpus_per_worker)  # fmt: skip
        return _Place(node.id, node.address, actor, actor.network.remote(), now, [_Seat() for _ in range(count)])

    def _shrink(self, offered: Dict[str, int], nodes: List[RayNode]) -> None:
        """Makes ranks leave that are not offered any more, while the others are enough: those on lost nodes first, and the
        last ones of a host."""
        alive = {node.id for node in nodes}
        for place in sorted(reversed(self._places), key=lambda each: each.node in alive):
            for number, seat in reversed(list(enumerate(place.seats))):
                if not seat.stays() or self._seats(place.address) <= offered.get(place.address, 0):
                    continue
                if seat.agent is None:  # nothing of this actor has begun
                    place.kill()
                    self._let_go(place)
                    break
                if self._running() > self._params.least:
                    seat.is_leaving = True
                    place.actor.leave.remote(number)

    def _running(self) -> int:
        return sum(seat.agent is not None for place in self._places for seat in place.staying())

    def _look_at_places(self) -> None:
        """Looks which actors have come up, and which agents have ended."""
        for place in list(self._places):
            try:
                if not place.is_up and _is_there(place.started):
                    ray.get(place.started)
                    place.is_up = True
                self._look_at_seats(place)
            except Exception as error:
                self._lose(place, reason_of(error))
                continue
            patience_s = self._adapter.settings.timeout_s
            if not place.is_up and time.monotonic() - place.made_at > patience_s:
                place.kill()
                self._lose(place, f"Ray has not started it after {patience_s:g} s", is_final=False)
            elif place.is_over():
                self._let_go(place)
        for place in self._gone:
            if not place.is_killed and all(seat.result is None or _is_there(seat.result) for seat in place.seats):
                place.kill()

    def _look_at_seats(self, place: _Place) -> None:
        for seat in place.seats:
            if seat.is_over or seat.agent is None or not _is_there(seat.agent):
                continue
            seat.is_over = True
            try:
                ray.get(seat.agent)
            except ray.exceptions.RayTaskError as error:  # the agent says why it has ended
                if not seat.is_leaving:
                    self._note_loss(place, reason_of(error))

    def _lose(self, place: _Place, why: str, is_final: bool = True) -> None:
        was_needed = bool(place.staying())
        for seat in place.seats:
            seat.is_over = True
        self._let_go(place)
        if was_needed:
            self._note_loss(place, why, is_final)

    def _let_go(self, place: _Place) -> None:
        self._places.remove(place)
        self._gone.append(place)

    def _note_loss(self, place: _Place, why: str, is_final: bool = True) -> None:
        self._last_loss = f"on {place.address}: {why}"
        if self._launched is None:
            if is_final and not self._places:
                raise RuntimeError(f"{_WHO}: an actor of Ray has ended {self._last_loss}")
        elif not self._launched.is_alive():
            return
        elif self._join_order() is None:
            if not self._has_begun:
                self._launched.tell(f"an actor of Ray has ended {self._last_loss}")
            return  # the job is ending, and hvdrun knows what it has lost
        seconds = self._cooldown.note_loss(place.node, time.monotonic())
        _tell(f"{self._last_loss}; nothing is started there for {seconds:g} s")

    # ---- the job ----

    def _launch(self) -> None:
        first = list(self._places)
        count = sum(len(place.seats) for place in first)
        cpus = str(max(1, int(self._params.cpus_per_worker)))  # as Ray has it
        launch = Launch(
            num_proc=count,
            words=self._words(),
            environment={"OMP_NUM_THREADS": cpus, **self._adapter.environment},
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
                begun += len(place.seats)

        self._launched = Launched(launch, self._adapter.own_settings, start_agents)
        self._launched.start()

    def _start(self, place: _Place, order: Any, begun: int) -> None:
        actor = place.actor
        for number, seat in enumerate(place.seats):
            seat.result = actor.serve.options(concurrency_group=f"rank{number}").remote(number, self._calls, self._logs)
            seat.agent = actor.run_agent.options(concurrency_group=f"agent{number}").remote(number, order, begun + number)

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
            self._adapter.check_wanted()
            self._look_at_places()
            order = self._join_order()
            if order is None or not self._launched.is_alive():
                continue
            offered, nodes = self._adapter.offered(), self._adapter.nodes()
            self._shrink(offered, nodes)
            self._grow(offered, nodes, time.monotonic())
            for place in self._places:
                if place.is_up and place.seats[0].agent is None:
                    self._start(place, order, 0)
        if self._launched.error is not None:
            raise self._launched.error

    def _join_order(self) -> Optional[JoinOrder]:
        """What an agent needs to join the job; None: it has not begun, or is ending."""
        order = JoinOrder.read(self._join_file)
        self._has_begun = self._has_begun or order is not None
        return order

    def _wait_for_logs(self) -> None:
        """Waits until the actors have put what the ranks logged into the queue: they are killed after this."""
        served = [seat.result for place in [*self._gone, *self._places] for seat in place.seats if seat.result is not None]
        if self._logs is not None and served:
            ray.wait(served, num_returns=len(served), timeout=LOGS_S)

    def _results(self) -> List[bytes]:
        outcome = self._launched.outcome
        if outcome.code:
            self._wait_for_logs()
            results_of(_WHO, [*outcome.replies, None], outcome.code, outcome.last_words, has_all=False)  # raises
        found: List[Tuple[int, bytes]] = []
        lost = 0
        for place in [*self._gone, *self._places]:
            for seat in place.seats:
                try:
                    value = None if seat.result is None else ray.get(seat.result)
                except Exception:  # of its actor; the job may have done without it
                    lost += 1
                else:
                    found += [] if value is None else [value]
        if len(found) < self._params.least:
            raise RuntimeError(
                f"{_WHO}: {len(found)} of {self._params.least} ranks left a result; of {lost} the actor was lost, and others ended "
                f"with code 0 before their function returned, as os._exit(0) does\n{outcome.last_words}"
            )
        return [value for _, value in sorted(found)]


class ElasticAdapter:
    """From start() to shutdown(), which may be called on another thread than run()."""

    def __init__(self, settings: Any, params: ElasticParams) -> None:
        self.settings = settings
        self.params = params
        # The user's variables for the ranks, and the driver's own that are meant for all of them.
        self.environment: Dict[str, str] = {}
        self.own_settings: Dict[str, str] = {}
        self.is_over = threading.Event()
        self._whole = RayHostDiscovery(bool(params.gpus_per_worker), params.cpus_per_worker, params.gpus_per_worker)
        self._discovery = settings.discovery or self._whole
        self._offered: Optional[Dict[str, int]] = None
        self._unknown: List[str] = []  # offered hosts that Ray does not know
        self._trouble = ""  # that was told last
        self._make: Optional[bytes] = None
        self._is_idle = threading.Event()
        self._is_idle.set()

    def start(self, make: Optional[bytes], environment: Dict[str, str], settings: Dict[str, str]) -> None:
        """Waits until there are hosts enough. With `make`, the ranks of each call make an object first.

        TimeoutError: there are not."""
        self._make, self.environment, self.own_settings = make, environment, settings
        deadline = time.monotonic() + self.params.elastic_timeout
        while sum(self.offered().values()) < self.params.least:
            self.check_wanted()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the job needs {self.params.least} slots, and for {self.params.elastic_timeout:g} s (elastic_timeout) there "
                    f"have been {self.offer_text()}; give the cluster more nodes, or lower min_workers"
                )
            self.is_over.wait(_LOOK_S)

    def check_wanted(self) -> None:
        """RuntimeError after shutdown()."""
        if self.is_over.is_set():
            raise RuntimeError(f"{_WHO}.shutdown() was called")

    def offer_text(self) -> str:
        offered = self._offered or {}
        text = f"{sum(offered.values())} slots on {len(offered)} host{'' if len(offered) == 1 else 's'} of Ray"
        return f"{text}, which does not know {', '.join(self._unknown)}" if self._unknown else text

    def offered(self) -> Dict[str, int]:
        """The slots of each host, by the address that Ray has for it. While the discovery fails they stay as they were."""

        def ask() -> Dict[str, int]:
            found = self._discovery.find_available_hosts_and_slots()
            whole = self._whole.find_available_hosts_and_slots() if None in found.values() else {}
            known, self._unknown = with_addresses(found)
            return {host: whole.get(host, 0) if slots is None else int(slots) for host, slots in known.items()}

        if self._offered is None:
            self._offered = ask()
        else:
            self._offered = self._retried("the discovery", ask, self._offered)
        return self._offered

    def nodes(self) -> List[RayNode]:
        """Those that are alive, with the room that they have; none while Ray does not say it."""
        params = self.params
        return self._retried("Ray", lambda: alive_nodes(params.cpus_per_worker, params.gpus_per_worker), [])

    def _retried(self, who: str, ask: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return ask()
        except Exception as error:
            trouble = f"the hosts stay as they are, since {who} fails: {type(error).__name__}: {error}"
            if trouble != self._trouble:
                self._trouble = trouble
                _tell(trouble)
            return otherwise

    def run(self, kind: str, payload: bytes, logs: Any) -> List[bytes]:
        """What each rank of a job returned, as it was pickled there."""
        self._is_idle.clear()
        try:
            self.check_wanted()
            make = [] if self._make is None else [(_rank.MAKE, self._make)]
            return _Job(self, [*make, (kind.encode(), payload)], logs).run()
        finally:
            self._is_idle.set()

    def give_up(self) -> None:
        """Ends a job that still runs; the next one may begin."""
        self.is_over.set()
        self._is_idle.wait(END_S)
        self.is_over.clear()

    def shutdown(self) -> None:
        """Ends a job that still runs, and takes no other."""
        self.is_over.set()
        self._is_idle.wait(END_S)
