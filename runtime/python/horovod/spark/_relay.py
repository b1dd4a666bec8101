"""A job whose hvdrun runs in the task of partition 0, for clusters whose executors cannot connect to the driver's machine
(a client of Spark Connect behind a NAT).

The tasks learn by one allGather of their barrier stage whom to call, which costs Spark a second. What the ranks print and
return comes to the driver as this task's result when the job is over.
"""

import dataclasses
import pickle
import threading
from typing import Any, List, Tuple

from horovod.runner._agent import Order, check_version
from horovod.runner._launch import Launch, Outcome
from horovod.spark import _task

# The number of characters of each stream that are kept for the driver, which sees them only at the end.
_KEPT_CHARACTERS = 1 << 20
# The bytes of a function from which on the tasks have it for their ranks, should hvdrun, which compresses it, not bring it.
_MAYBE_LARGE = 1 << 19


class _Kept:
    """The end of what was written."""

    def __init__(self) -> None:
        self._texts: List[str] = []
        self._size = 0
        self._dropped = 0

    def write(self, text: str) -> None:
        self._texts.append(text)
        self._size += len(text)
        while self._size > _KEPT_CHARACTERS and len(self._texts) > 1:
            dropped = self._texts.pop(0)
            self._size -= len(dropped)
            self._dropped += len(dropped)

    def text(self) -> str:
        head = f"({self._dropped} characters before this line are left out)\n" if self._dropped else ""
        return head + "".join(self._texts)


@dataclasses.dataclass
class Relayed:
    """What the task of partition 0 returns."""

    outcome: Outcome
    stdout: str
    stderr: str
    logs: List[str]


@dataclasses.dataclass
class RelayedOrder:
    """What each task of the stage is told."""

    launch: Launch
    version: str

    def run(self, partition: int) -> bytes:
        check_version(self.version)
        return self._run_hvdrun() if partition == 0 else self._run_agent(partition)

    def _run_agent(self, partition: int) -> bytes:
        key, place = _gather("")
        function = self.launch.payload if len(self.launch.payload) > _MAYBE_LARGE else None
        return _task.run_agent(Order(key, self.launch.num_proc, place, self.version, function), partition)

    def _run_hvdrun(self) -> bytes:
        out, err, logs = _Kept(), _Kept(), []  # type: Tuple[_Kept, _Kept, List[str]]
        environment = {**_task.environment_of_ranks(), **self.launch.settings}
        environment.pop("CUDA_VISIBLE_DEVICES", None)  # each agent has its task's own
        agents: List[threading.Thread] = []

        def start(order: Order, tell: Any) -> None:
            _gather(" ".join([order.key, *order.place]))
            agents.append(_Agent(order, tell))

        outcome = self.launch.run(environment, out, err, logs.append, start)
        if not agents:
            # The other tasks still wait for the address to call; this error ends the stage for them.
            raise RuntimeError(f"hvdrun could not start in the task of partition 0: {outcome.last_words.strip()}")
        return pickle.dumps(Relayed(outcome, out.text(), err.text(), logs))


class _Agent(threading.Thread):
    """The agent of partition 0, beside its hvdrun."""

    def __init__(self, order: Order, tell: Any) -> None:
        super().__init__(name="hvd-agent", daemon=True)
        self._order = order
        self._tell = tell
        self._environment = _task.environment_of_ranks()  # Spark knows the task only on the thread that it runs
        self.start()

    def run(self) -> None:
        try:
            self._order.run(0, self._environment)
        except Exception as error:
            self._tell(f"the agent of partition 0: {error}")


def _gather(call: str) -> Tuple[str, List[str]]:
    """The key and the place of hvdrun, which the task of partition 0 knows."""
    from pyspark import BarrierTaskContext

    key, *place = BarrierTaskContext.get().allGather(call)[0].split()
    return key, place
