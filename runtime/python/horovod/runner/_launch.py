"""hvdrun for one job whose agents an engine starts (Spark, Ray): what it is told, and what comes of it.

It runs in the program that wants the results, or in a task of the engine.
"""

import dataclasses
import os
import re
import socket
from typing import Any, Callable, Dict, List, Optional

from horovod.runner import _job
from horovod.runner._agent import PYTHON, Order
from horovod.runner._exchange import MOST, Lines

# The time in seconds from the start of hvdrun until it listens. No network is involved, so this allows a slow machine.
_LISTEN_S = 60.0
# Variables with these prefixes are set by a user on the driver, and meant for all ranks.
_SETTINGS = ("HOROVOD_", "HVD_", "NCCL_")
# Names of variables whose values are nobody else's business; and how many bytes Linux takes of one variable or word.
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
_MOST_BYTES = 128 * 1024 - 1


def own_settings() -> Dict[str, str]:
    """This process's variables that are meant for all ranks."""
    return {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}


@dataclasses.dataclass
class Outcome:
    """What hvdrun left."""

    # By rank, None where nothing came; of an elastic job those that came.
    replies: List[Optional[bytes]]
    code: int
    last_words: str

    @property
    def has_failed(self) -> bool:
        return self.code != 0 or None in self.replies


@dataclasses.dataclass
class Launch:
    """What hvdrun is told."""

    num_proc: int
    words: List[str]
    environment: Dict[str, str] = dataclasses.field(repr=False)  # the user's, for the ranks
    executable: Optional[str]
    is_local: bool  # all agents are on this machine, and can call loopback
    largest_result: int
    payload: bytes = dataclasses.field(repr=False)
    settings: Dict[str, str] = dataclasses.field(default_factory=dict, repr=False)
    is_elastic: bool = False

    def take_settings(self) -> None:
        """Notes this process's settings, for where hvdrun runs elsewhere."""
        self.settings = own_settings()

    def run(
        self,
        base: Dict[str, str],
        stdout: Any,
        stderr: Any,
        on_log: Callable[[str], None],
        start_tasks: Callable[[Order, Callable[[str], None]], None],
    ) -> Outcome:
        """Runs hvdrun to its end, over the environment `base`. `start_tasks` is called once it can be called; what it is
        given second tells hvdrun that the tasks are over, and why."""
        exchange = Lines(self.payload, has_tasks=True)
        exchange.on_log = on_log
        exchange.environment[MOST] = str(self.largest_result)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                argv = self._argv(exchange, theirs.fileno())
                process = _job.start(argv, {**base, **self._hidden(), **exchange.environment}, pass_fds=(theirs.fileno(),))

            def begin() -> None:
                order = self._order_of(ours)
                if order is not None:
                    order.function = exchange.by_tasks
                    start_tasks(order, lambda text: _tell(ours, text))

            code, last_words = _job.run_to_end(process, exchange.take, stdout, stderr, begin)
        replies = exchange.results() if self.is_elastic else [exchange.result(rank) for rank in range(self.num_proc)]
        return Outcome(list(replies), code, last_words)

    def _hidden(self) -> Dict[str, str]:
        """The variables that hvdrun takes from its environment, because every user of the machine sees its words."""
        return {name: value for name, value in self.environment.items() if _SECRET.search(name)}

    def _argv(self, exchange: Lines, driver_fd: int) -> List[str]:
        for name, value in self.environment.items():
            if len(os.fsencode(f"{name}={value}")) > _MOST_BYTES:
                raise ValueError(f"env: {name} has more than the {_MOST_BYTES} bytes of a variable; write it to a file, and give its path")
        count = self.num_proc
        # The host list says only whether the agents call loopback; where ranks are is known when all have called.
        hosts = f"localhost:{count}" if self.is_local else f"cluster:{count}"
        words = ["--launcher", "spark", "--driver-fd", str(driver_fd), "-np", str(count), "-H", hosts, *exchange.words, *self.words]
        passed = [word for name in exchange.environment for word in ("-x", name)]
        passed += [
            word for name, value in self.environment.items() for word in ("-x", name if name in self._hidden() else f"{name}={value}")
        ]
        python = f'exec "{self.executable or f"${PYTHON}"}" -m horovod.runner.run_task'
        return [_job.find_program("hvdrun"), *words, *passed, "sh", "-c", python]

    def _order_of(self, driver: socket.socket) -> Optional[Order]:
        """What hvdrun asks for; None when it has ended instead, which its last words explain."""
        driver.settimeout(_LISTEN_S)
        line = b""
        while not line.endswith(b"\n"):
            piece = driver.recv(4096)
            if not piece:
                return None
            line += piece
        word, key, count, *place = line.decode().split()
        if word != "call" or int(count) != self.num_proc:
            raise RuntimeError("hvdrun and the Python package horovod are of different releases; install the wheel again")
        return Order(key, self.num_proc, place)


def _tell(driver: socket.socket, text: str) -> None:
    try:
        driver.sendall(f"over {text[:1000]}\n".encode())
    except OSError:
        pass  # hvdrun has ended already
