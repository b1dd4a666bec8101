"""One job of RayExecutor, from start() to shutdown(): hvdrun, and the actors that start its agents.

It lives in the driver's process, or in an actor where the driver is a Ray Client, which the cluster's hosts cannot call.
"""

import concurrent.futures
import contextlib
import functools
import threading
from typing import Any, Dict, List, Optional

import ray

from horovod.ray import _node, _rank
from horovod.ray._launched import AGENTS_WORD_S, END_S, Launched, reason_of, words_of
from horovod.ray.strategy import Params, Strategy
from horovod.runner._agent import Order
from horovod.runner._job import make_payload, results_of
from horovod.runner._launch import Launch

_WHO = "horovod.ray.RayExecutor"
# How often it looks whether hvdrun still runs, in seconds, while the ranks start.
_LOOK_S = 0.5
# The time in seconds for a call to end after its rank has.
_SETTLE_S = 10.0


def settle(asked: List[Any], patience_s: float = _SETTLE_S) -> None:
    """Takes what other ranks' calls came to, once the job is over; Ray logs errors that nobody takes."""
    for each in asked:
        if not ray.is_initialized():  # else the call would start another one
            return
        try:
            ray.get(each, timeout=patience_s)
        except Exception:
            pass  # a consequence of what is raised already


def _on_agent_over(launched: Launched, first: threading.Lock, agent: "concurrent.futures.Future[Any]") -> None:
    """Tells hvdrun when the first actor is gone, or its agent cannot do its work. Called on a thread of Ray's.

    Args:
        first: whoever has locked it tells.
    """
    error = agent.exception()
    if error is not None and first.acquire(blocking=False):
        threading.Thread(target=_tell_of_agent, args=(launched, error), name="hvd-ray-agents", daemon=True).start()


def _tell_of_agent(launched: Launched, error: BaseException) -> None:
    # Where hvdrun has a connection to the agents, it knows by itself which rank this has met.
    launched.join(AGENTS_WORD_S)
    launched.tell(f"an actor of Ray has ended: {reason_of(error)}")


class Adapter:
    """Called on one thread."""

    def __init__(self, settings: Any, params: Params) -> None:
        self._settings = settings
        self._params = params
        self.strategy = Strategy(settings, params)
        self._actors: List[Any] = []
        self._seats: Dict[int, Any] = {}  # rank: how to ask it
        self._launched: Optional[Launched] = None
        self._last: Dict[int, Any] = {}  # what each rank was asked last, which it does after all else

    def start(self, make: Optional[bytes], environment: Dict[str, str], settings: Dict[str, str]) -> None:
        """Starts the ranks; with `make`, each calls that and keeps the object. Nothing is left when it raises.

        TimeoutError: Ray has no room, or does not start the actors in time. RuntimeError: the ranks could not be started."""
        try:
            self._start_actors()
            self._start_ranks(environment, settings)
            if make is not None:
                ray.get(self.ask("make", make, self._params.ranks))
        except Exception as error:
            try:
                self.explain(reason_of(error))
            finally:
                try:
                    settle(list(self._last.values()))
                finally:  # also after Ctrl-C
                    self.shutdown()
            raise
        except BaseException:  # Ctrl-C
            self.shutdown()
            raise

    def _start_actors(self) -> None:
        params = self._params
        for place in self.strategy.reserve():
            # A thread of its own for each rank keeps the order of its calls.
            groups = {"agents": 1, **{f"rank{number}": 1 for number in range(place.seats)}}
            actor = ray.remote(concurrency_groups=groups)(_node.Node).options(**place.options)
            self._actors.append(actor.remote(place.seats, params.gpus_per_worker))

    def _start_ranks(self, environment: Dict[str, str], settings: Dict[str, str]) -> None:
        params, timeout_s = self._params, self._settings.timeout_s
        try:
            networks = ray.get([actor.network.remote() for actor in self._actors], timeout=timeout_s)
        except ray.exceptions.GetTimeoutError as error:
            raise TimeoutError(
                f"Ray has not started {len(self._actors)} actors after {timeout_s:g} s {self.strategy.where}; "
                "see Ray's logs, or allow more with create_settings(timeout_s=...)"
            ) from error
        launch = Launch(
            num_proc=params.ranks,
            words=["--start-timeout", str(timeout_s), *words_of(self._settings, params.gpus_per_worker)],
            environment=environment,
            executable=None,
            is_local=set(networks) == {_node.own_network()},
            largest_result=0,
            payload=make_payload(_rank.serve, (), {}),
        )
        self._launched = Launched(launch, settings, self._start_agents)
        self._launched.start()
        for actor, ranks in zip(self._actors, self._connected(timeout_s)):
            for number, rank in enumerate(ranks):
                self._seats[rank] = (actor.ask.options(concurrency_group=f"rank{number}"), number)

    def _connected(self, timeout_s: float) -> List[List[int]]:
        """The ranks of each actor, when all have called."""
        calls = [actor.connect.remote(timeout_s) for actor in self._actors]
        pending = calls
        while pending and self._launched.is_alive():
            done, pending = ray.wait(pending, num_returns=1, timeout=_LOOK_S)
            try:
                ray.get(done)
            except Exception as error:
                self._launched.join(AGENTS_WORD_S)
                self._launched.end(f"the ranks of an actor have not started: {reason_of(error)}")
                raise
        if pending:
            raise RuntimeError(f"{_WHO}: hvdrun has ended before the ranks had started")
        return ray.get(calls)

    def _start_agents(self, order: Order) -> None:
        seats = self._params.ranks // len(self._actors)
        agents = [actor.run_agents.options(concurrency_group="agents").remote(order, number * seats)
                  for number, actor in enumerate(self._actors)]  # fmt: skip
        # No thread waits within Ray: when that is shut down, which may be at any time, the wait would crash.
        first = threading.Lock()
        for agent in agents:
            agent.future().add_done_callback(functools.partial(_on_agent_over, self._launched, first))

    def ask(self, kind: str, payload: bytes, ranks: int, logs: Any = None) -> List[Any]:
        """References to what the first `ranks` ranks will return, in rank order. What they log goes into the queue `logs`."""
        if self._launched is None or not self._launched.is_alive():
            raise RuntimeError(f"{_WHO}: the ranks have ended; call start() again")
        return self._ask(kind, payload, ranks, logs)

    def _ask(self, kind: str, payload: bytes, ranks: int, logs: Any = None) -> List[Any]:
        given = ray.put(payload)
        asked = [self._seats[rank] for rank in range(ranks)]
        answers = [method.remote(number, kind.encode(), given, logs) for method, number in asked]
        self._last.update(enumerate(answers))
        return answers

    def explain(self, why: str) -> None:
        """After a failure of a call, in one line: ends the job, and raises what came first in it. It returns where no job ran."""
        launched = self._launched
        if launched is None:
            return
        # hvdrun knows by itself of a rank that has failed. For one that has ended in order it would wait for the others.
        launched.join(AGENTS_WORD_S)
        if launched.is_alive():
            launched.end(why)
        if launched.error is not None:
            raise launched.error
        if launched.outcome is not None:
            results_of(_WHO, launched.outcome.replies, launched.outcome.code, launched.outcome.last_words)

    def shutdown(self) -> None:
        """Ends the ranks, and gives back what Ray has reserved. Ranks that still call a function are stopped."""
        launched = self._launched
        try:
            if launched is not None and launched.is_alive():
                if self._seats and self._is_idle():
                    self._ask("stop", b"", self._params.ranks)
                    launched.join(END_S)
                launched.end(f"{_WHO}.shutdown() was called")
            for actor in self._actors:
                with contextlib.suppress(ValueError):  # of a Ray that was shut down, and with it the actor
                    ray.kill(actor)
        finally:
            self._actors, self._seats, self._launched, self._last = [], {}, None, {}
            self.strategy.release()

    def shutdown_when_idle(self, is_enough: Optional[threading.Event] = None) -> None:
        """As shutdown(), once the ranks have done what they were asked for, or that is set."""
        is_enough = threading.Event() if is_enough is None else is_enough
        launched = self._launched
        while ray.is_initialized() and not self._is_idle() and launched is not None and launched.is_alive() and not is_enough.wait(_LOOK_S):
            pass
        if ray.is_initialized():
            self.shutdown()

    def _is_idle(self) -> bool:
        try:
            last = list(self._last.values())
            return not last or not ray.wait(last, num_returns=len(last), timeout=0)[1]
        except (Exception, KeyboardInterrupt):  # in a task of Ray that was cancelled, each wait raises
            return False
