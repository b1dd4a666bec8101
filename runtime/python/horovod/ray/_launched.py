"""hvdrun for a job whose agents run in Ray's actors, on a thread of its own."""

import os
import threading
from typing import Any, Callable, Dict, List, Optional

import ray

from horovod.runner._agent import Order
from horovod.runner._launch import Launch, Outcome

# The time in seconds for hvdrun to end after it has been told to, or after a rank has failed. It ends ranks that do not
# listen by force before that.
END_S = 60.0
# The time in seconds in which hvdrun learns from the agents that an actor has died, or that a rank has failed.
AGENTS_WORD_S = 2.0
# The time in seconds for the actors to pass on what the ranks logged, when a job has failed.
LOGS_S = 30.0
# How many characters of Ray's words on an actor's death are told.
_RAYS_WORDS = 300


class Launched(threading.Thread):
    """hvdrun, while it runs, and what came of it. `start_agents` starts the actors' agents when they can call."""

    def __init__(self, launch: Launch, settings: Dict[str, str], start_agents: Callable[[Order], None]) -> None:
        super().__init__(name="hvd-ray", daemon=True)
        self._launch = launch
        self._environment = {**os.environ, **settings}
        self._start_agents = start_agents
        self._lock = threading.Lock()
        self._tell: Optional[Callable[[str], None]] = None  # None: hvdrun has not asked for the agents
        self._why_not: Optional[str] = None  # it is to be ended before that
        self.outcome: Optional[Outcome] = None
        self.error: Optional[BaseException] = None

    def run(self) -> None:
        try:
            self.outcome = self._launch.run(self._environment, None, None, print, self._begin)
        except BaseException as error:
            self.error = error

    def tell(self, why: str) -> None:
        """Tells hvdrun that the agents are gone, and why, unless it has ended."""
        with self._lock:
            if self._tell is None:
                self._why_not = why
                return
        self._tell(why)

    def end(self, why: str) -> None:
        """Stops the ranks, unless they have ended."""
        self.tell(why)
        self.join(END_S)

    def _begin(self, order: Order, tell: Callable[[str], None]) -> None:
        with self._lock:
            self._tell = tell
            why = self._why_not
        if why is None:
            self._start_agents(order)
        else:
            tell(why)


def words_of(settings: Any, gpus_per_worker: int) -> List[str]:
    """hvdrun's options that all jobs of a RayExecutor have."""
    words = ["--network-interfaces", ",".join(sorted(settings.nics))] if settings.nics else []
    if settings.verbose < 2:
        words.append("--quiet")
    # With one GPU each, ranks of a host see those of all, each its own at its local rank.
    return words if gpus_per_worker == 1 else [*words, "--gpus", "none"]


def cannot_be_made(failure: Optional[Exception]) -> bool:
    """Whether the actor's class could not be loaded or made, as without this package on its node."""
    return isinstance(failure, ray.exceptions.RayActorError) and failure.actor_init_failed


def _reason_of_actor(error: Any) -> str:
    """Ray's word on why an actor is dead. Its own texts name the actor in lines that begin with a tab, and then guess at
    causes."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
    if error.actor_init_failed:
        return lines[-1]  # of a traceback
    if not isinstance(error, ray.exceptions.ActorDiedError):
        return lines[0][:_RAYS_WORDS]  # it cannot be reached
    said = " ".join(lines[1:]).partition(" There are some potential root causes")[0]
    return f"the process of the actor has died{': ' if said else ''}{said[:_RAYS_WORDS]}"


def reason_of(error: Exception) -> str:
    """One line that says why a call of Ray failed."""
    if isinstance(error, ray.exceptions.RayTaskError):
        return str(error.cause)
    if isinstance(error, ray.exceptions.RayActorError):
        return _reason_of_actor(error)
    return str(error).partition("\n")[0] or type(error).__name__
