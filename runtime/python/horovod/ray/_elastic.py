"""Elastic jobs of RayExecutor: each call of run() is a job of hvdrun, whose ranks come and go with Ray's nodes.

An actor for each rank starts its agent. Those of the first actors call hvdrun together, as in other jobs; those of later
ones join it. Where an actor is lost, its agent ends, and hvdrun goes on with the others.
"""

import dataclasses
import math
import pathlib
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import ray

from horovod.ray import _node, _rank
from horovod.ray._launched import END_S, LOGS_S, Launched, cannot_be_made, reason_of, words_of
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
# How often a job is started whose actors are lost before it has begun.
_MOST_STARTS = 10
# The seconds in which nothing is started where an actor was lost: least, most.
_COOLDOWN_S = (10.0, 600.0)


def _tell(text: str) -> None:
    print(f"{_WHO}: {text}", file=sys.stderr, flush=True)


class _Cooldown:
    """_Cooldown says on which nodes nothing is started for a while: `least_s` after a first loss, twice as long after each
    other one, `most_s` at most. The loss of a rank that had been there for longer than `most_s` counts as the first."""

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s, self._most_s = least_s, most_s
        self._times: Dict[str, Tuple[float, float]] = {}  # by node: the end of the last one, and how long it is

    def note_loss(self, node: str, lived_s: float, now: float) -> float:
        """Returns for how many seconds nothing is started there, after the loss of what was there for `lived_s` seconds."""
        until, length_s = self._times.get(node, (-math.inf, self._least_s / 2))
        if now >= until:  # those that are lost together count once
            longer_s = self._least_s if lived_s > self._most_s else max(2 * length_s, self._least_s)
            length_s = min(longer_s, self._most_s)
            until = now + length_s
            self._times[node] = until, length_s
        return until - now

    def is_over(self, node: str, now: float) -> bool:
        return now >= self._times.get(node, (-math.inf, 0.0))[0]


def _is_there(reference: Any) -> bool:
    return bool(ray.wait([reference], timeout=0, fetch_local=False)[0])


@dataclasses.dataclass
class _Seat:
    """An actor, and the rank that it is for. Ray has room for another one as soon as one has ended."""

    node: str
    address: str
    actor: Any
    started: Any  # a reference that is there when the actor is
    made_at: float
    agent: Any = None  # a reference that is there when its agent has ended; None: it has none yet
    begun_at: Optional[float] = None  # when it was told to start one
    result: Any = None  # a reference to what the rank returned
    is_up: bool = False
    is_leaving: bool = False
    is_killed: bool = False

    def kill(self) -> None:
        self.is_killed = True
        try:
            if ray.is_initialized():  # else it has ended, and the call would start Ray
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
        self._begun_at = time.monotonic()
        self._seats: List[_Seat] = []
        self._gone: List[_Seat] = []  # whose agents have ended, or which were lost
        self._cooldown = _Cooldown(*(self._params.cooldown_range or _COOLDOWN_S))
        self._last_loss = ""
        self._launched: Optional[Launched] = None
        self._starts = 1
        self._has_begun = False
        self._has_lost_early = False  # an actor was, before the job had begun
        self._join_file: Optional[pathlib.Path] = None

    def run(self) -> List[bytes]:
        """What the ranks returned that were there at the end, as they pickled it, in rank order."""
        with tempfile.TemporaryDirectory(prefix="hvd-ray-") as folder:  # mode 0700
            self._join_file = pathlib.Path(folder) / "join"
            try:
                while True:
                    self._gather()
                    self._launch()
                    if self._follow():
                        return self._results()
                    self._start_over()
            finally:
                try:
                    if self._launched is not None and self._launched.is_alive():
                        self._launched.end(f"{_WHO}: the call was given up")
                finally:  # also after another Ctrl-C
                    for seat in [*self._gone, *self._seats]:
                        seat.kill()
                    # What it knows knows it too, so that all would stay until Python looks for such circles.
                    self._gone, self._seats, self._launched = [], [], None

    # ---- the actors ----

    def _gather(self) -> None:
        """Waits for actors enough. TimeoutError: Ray has no room for them, or does not start them in time."""
        params = self._params
        begun = time.monotonic()
        while True:
            self._adapter.check_wanted()
            offered, nodes, now = self._adapter.offered(), self._adapter.nodes(), time.monotonic()
            wanted = self._capped(sum(offered.values()))
            room = sum(min(node.free, offered.get(node.address, 0)) for node in nodes)
            is_late = now - self._begun_at > params.elastic_timeout
            if not is_late and (self._seats or wanted <= room or now - begun > _FREE_S):
                self._grow(offered, nodes, now)
            self._look_at_seats()
            up = sum(seat.is_up for seat in self._seats)
            if is_late and up >= params.least:
                self._do_without([seat for seat in self._seats if not seat.is_up])
            waiting = [seat.started for seat in self._seats if not seat.is_up]
            if up >= params.least and not waiting and self._are_all_alive():
                return
            if is_late:
                up = sum(seat.is_up for seat in self._seats)
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

    def _do_without(self, seats: List[_Seat]) -> None:
        for seat in seats:
            seat.kill()
            self._let_go(seat)

    def _are_all_alive(self) -> bool:
        """Looks again at actors that have waited for others."""
        asked = {seat.actor.network.remote(): seat for seat in self._seats}
        patience_s = self._adapter.settings.timeout_s
        pending, deadline = list(asked), time.monotonic() + patience_s
        while pending and time.monotonic() < deadline:
            self._adapter.check_wanted()
            _, pending = ray.wait(pending, num_returns=len(pending), timeout=_LOOK_S)
        for reference, seat in asked.items():
            try:
                if reference in pending:
                    seat.kill()
                    raise TimeoutError(f"it has not answered for {patience_s:g} s")
                ray.get(reference)
            except Exception as error:
                self._let_go(seat)
                self._note_loss(seat, error)
        return len(self._seats) >= self._params.least

    def _capped(self, ranks: int) -> int:
        return min(ranks, self._params.most) if self._params.most else ranks

    def _staying(self, address: Optional[str] = None) -> int:
        """How many ranks stay, on a host or on all."""
        return sum(not seat.is_leaving for seat in self._seats if address in (None, seat.address))

    def _grow(self, offered: Dict[str, int], nodes: List[RayNode], now: float) -> None:
        """Starts actors where more ranks are offered than there are."""
        for node in nodes:
            if not self._cooldown.is_over(node.id, now):
                continue
            missing = max(0, offered.get(node.address, 0) - self._staying(node.address))
            missing = self._capped(self._staying() + missing) - self._staying()
            for _ in range(min(missing, node.free)):
                self._seats.append(self._seat_on(node, now))

    def _seat_on(self, node: RayNode, now: float) -> _Seat:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        params = self._params
        # A call of its own thread for the agent, the rank, and for what is asked beside them.
        actor = ray.remote(concurrency_groups={"agent": 1, "rank": 1})(_node.Node).options(
            num_cpus=params.cpus_per_worker,
            num_gpus=params.gpus_per_worker,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        ).remote(1, params.gpus_per_worker)  # fmt: skip
        return _Seat(node.id, node.address, actor, actor.network.remote(), now)

    def _shrink(self, offered: Dict[str, int], nodes: List[RayNode]) -> None:
        """Makes ranks leave that are not offered any more, while the others are enough: those on lost nodes first, and the
        last ones of a host."""
        alive = {node.id for node in nodes}
        for seat in sorted(reversed(self._seats), key=lambda each: each.node in alive):
            if seat.is_leaving or self._staying(seat.address) <= offered.get(seat.address, 0):
                continue
            if seat.agent is None:  # nothing of this actor has begun
                self._do_without([seat])
            elif self._running() > self._params.least:
                seat.is_leaving = True
                seat.actor.leave.remote(0)

    def _running(self) -> int:
        return sum(seat.agent is not None and not seat.is_leaving for seat in self._seats)

    def _look_at_seats(self) -> None:
        """Looks which actors have come up, and which agents have ended."""
        for seat in list(self._seats):
            failure: Optional[Exception] = None
            try:
                if not seat.is_up and _is_there(seat.started):
                    ray.get(seat.started)
                    seat.is_up = True
                self._check_patience(seat)
                if seat.agent is None or not _is_there(seat.agent):
                    continue
                ray.get(seat.agent)
            except Exception as error:  # of the agent, which says why it has ended, or of the actor
                failure = error
            self._let_go(seat)
            if not seat.is_leaving or isinstance(failure, ray.exceptions.RayActorError):
                self._note_loss(seat, failure)
        for seat in self._gone:
            if not seat.is_killed and (seat.result is None or _is_there(seat.result)):
                seat.kill()

    def _check_patience(self, seat: _Seat) -> None:
        """TimeoutError: the actor has not come up in time, and is killed."""
        patience_s = self._adapter.settings.timeout_s
        if not seat.is_up and time.monotonic() - seat.made_at > patience_s:
            seat.kill()
            raise TimeoutError(f"Ray has not started it after {patience_s:g} s")

    def _let_go(self, seat: _Seat) -> None:
        self._seats.remove(seat)
        self._gone.append(seat)

    def _note_loss(self, seat: _Seat, failure: Optional[Exception]) -> None:
        """An actor, or its agent, has ended: with `failure`, or in order though the job goes on."""
        loss = f"on {seat.address}: {reason_of(failure) if failure is not None else 'its agent has ended'}"
        launched = self._launched
        if launched is None:
            if cannot_be_made(failure) and not self._seats:
                raise RuntimeError(f"{_WHO}: an actor of Ray cannot be made {loss}") from failure
        elif self._join_order() is None:
            if self._has_begun or failure is None:
                return  # the job is ending, and hvdrun knows what it has lost
            if launched.is_alive():
                launched.tell(f"an actor of Ray has ended {loss}")
            if not isinstance(failure, ray.exceptions.RayActorError):
                return  # of the agent, which another one would meet too
            self._has_lost_early = True
        elif not launched.is_alive():
            return
        now = time.monotonic()
        lived_s = 0.0 if seat.begun_at is None else now - seat.begun_at
        seconds = self._cooldown.note_loss(seat.node, lived_s, now)
        self._last_loss = loss
        _tell(f"{loss}; nothing is started there for {math.ceil(seconds)} s")

    # ---- the job ----

    def _launch(self) -> None:
        first = list(self._seats)
        cpus = str(max(1, int(self._params.cpus_per_worker)))  # as Ray has it
        launch = Launch(
            num_proc=len(first),
            words=self._words(),
            environment={"OMP_NUM_THREADS": cpus, **self._adapter.environment},
            executable=None,
            is_local=False,  # a node that joins may be anywhere
            largest_result=0,
            payload=make_payload(_rank.serve, (), {}),
            is_elastic=True,
        )

        def start_agents(order: Order) -> None:
            for number, seat in enumerate(first):
                self._start(seat, order, number)

        self._has_lost_early = False
        self._launched = Launched(launch, self._adapter.own_settings, start_agents)
        self._launched.start()

    def _start(self, seat: _Seat, order: Union[Order, JoinOrder], number: int) -> None:
        seat.begun_at = time.monotonic()
        seat.result = seat.actor.serve.options(concurrency_group="rank").remote(0, self._calls, self._logs)
        seat.agent = seat.actor.run_agent.options(concurrency_group="agent").remote(0, order, number)

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

    def _follow(self) -> bool:
        """Until hvdrun has ended: ranks join and leave as the discovery says. False: an actor was lost before the job began."""
        while self._launched.is_alive():
            self._launched.join(_LOOK_S)
            self._adapter.check_wanted()
            self._look_at_seats()
            order = self._join_order()
            if order is None or not self._launched.is_alive():
                continue
            offered, nodes = self._adapter.offered(), self._adapter.nodes()
            self._shrink(offered, nodes)
            self._grow(offered, nodes, time.monotonic())
            for seat in self._seats:
                if seat.is_up and seat.agent is None:
                    self._start(seat, order, 0)
        self._adapter.check_ray()
        if self._launched.error is not None:
            raise self._launched.error
        if not self._launched.outcome.code:
            return True
        if not self._has_begun:  # hvdrun may know of a loss before Ray does
            agents = [seat.agent for seat in self._seats if seat.agent is not None]
            if agents:
                ray.wait(agents, num_returns=len(agents), timeout=END_S)
            self._look_at_seats()
        return not self._has_lost_early

    def _start_over(self) -> None:
        """Ends what there is of a job that has not begun. RuntimeError: that was so too often."""
        if self._starts == _MOST_STARTS:
            raise RuntimeError(f"{_WHO}: an actor was lost at each of {_MOST_STARTS} starts of the job, the last one {self._last_loss}")
        self._starts += 1
        self._begun_at = time.monotonic()
        _tell("the job has not begun; its ranks are started anew")
        for seat in [*self._gone, *self._seats]:
            seat.kill()
        self._gone, self._seats, self._launched, self._has_begun = [], [], None, False
        self._join_file.unlink(missing_ok=True)

    def _join_order(self) -> Optional[JoinOrder]:
        """What an agent needs to join the job; None: it has not begun, or is ending."""
        order = JoinOrder.read(self._join_file)
        self._has_begun = self._has_begun or order is not None
        return order

    def _wait_for_logs(self) -> None:
        """Waits until the actors have put what the ranks logged into the queue: they are killed after this."""
        served = [seat.result for seat in [*self._gone, *self._seats] if seat.result is not None]
        if self._logs is not None and served:
            ray.wait(served, num_returns=len(served), timeout=LOGS_S)

    def _results(self) -> List[bytes]:
        outcome = self._launched.outcome
        if outcome.code:
            self._wait_for_logs()
            results_of(_WHO, [*outcome.replies, None], outcome.code, outcome.last_words, has_all=False)  # raises
        found: Dict[int, bytes] = {}
        lost = 0
        for seat in [*self._gone, *self._seats]:  # of two that were the same rank, the later one
            try:
                value = None if seat.result is None else ray.get(seat.result)
            except Exception:  # of its actor; the job may have done without it
                lost += 1
            else:
                found.update([] if value is None else [value])
        if len(found) < self._params.least:
            raise RuntimeError(
                f"{_WHO}: {len(found)} of {self._params.least} ranks left a result; of {lost} the actor was lost, and others ended "
                f"with code 0 before their function returned, as os._exit(0) does\n{outcome.last_words}"
            )
        return [found[rank] for rank in sorted(found)]


class ElasticAdapter:
    """From start() to shutdown(), which may be called on another thread than run()."""

    def __init__(self, settings: Any, params: ElasticParams) -> None:
        self.settings = settings
        self.params = params
        # The user's variables for the ranks, and the driver's own that are meant for all of them.
        self.environment: Dict[str, str] = {}
        self.own_settings: Dict[str, str] = {}
        self.is_over = threading.Event()
        self._is_given_up = threading.Event()  # the call is that runs
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
        """RuntimeError after shutdown(), also after Ray's, and in a call that was given up."""
        if self.is_over.is_set():
            raise RuntimeError(f"{_WHO}.shutdown() was called")
        if self._is_given_up.is_set():
            raise RuntimeError(f"{_WHO}: the call was given up")
        self.check_ray()

    def check_ray(self) -> None:
        """RuntimeError after ray.shutdown()."""
        if not ray.is_initialized():  # else the next question would start another Ray
            raise RuntimeError(f"{_WHO}: Ray was shut down during the call, and with it the ranks")

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
        """What each rank of a job returned, as it was pickled there. RuntimeError: the call before this one has not ended."""
        if not self._is_idle.wait(END_S):
            raise RuntimeError(f"{_WHO}: another call still runs, after {END_S:g} s")
        self._is_idle.clear()
        self._is_given_up.clear()
        try:
            self.check_wanted()
            make = [] if self._make is None else [(_rank.MAKE, self._make)]
            return _Job(self, [*make, (kind.encode(), payload)], logs).run()
        finally:
            self._is_idle.set()

    def give_up(self) -> None:
        """Ends a job that still runs; the next one may begin."""
        if not self._is_idle.is_set():
            self._is_given_up.set()
            self._is_idle.wait(END_S)

    def shutdown(self) -> None:
        """Ends a job that still runs, and takes no other."""
        self.is_over.set()
        self._is_idle.wait(END_S)

    def shutdown_when_idle(self, is_enough: Optional[threading.Event] = None) -> None:
        """As shutdown(): between calls nothing runs."""
        self.shutdown()
