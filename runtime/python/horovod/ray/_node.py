"""What RayExecutor runs as an actor in each of its places: the agents of the ranks there, and the way to these ranks.

The actor itself calls nothing of the user's, and unpickles no result. When it is killed, the standard input of its agents
ends, and they end their ranks.
"""

import os
import pickle
import queue
import secrets
import select
import socket
import struct
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from horovod.ray._rank import ERROR, MAKE
from horovod.ray._stream import KEY, SOCKET, Stream
from horovod.runner._agent import Order
from horovod.runner._job import raise_first_failure

# A rank that has connected says who it is at once; a stranger gets this many seconds.
_HELLO_S = 10.0
_HELLO_BYTES = 100


def own_network() -> str:
    """Processes with the same word can call each other on loopback."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()} {os.stat('/proc/self/ns/net').st_ino}"


class Answer:
    """What a rank returned, as it was pickled there. Where Ray unpickles an Answer, it becomes what the rank returned."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def __reduce__(self) -> Any:
        return pickle.loads, (self._payload,)


class _Seat:
    """One agent, and the rank that it runs. Its methods but run_agent() are called on one thread."""

    def __init__(self, elastic_timeout_s: Optional[float]) -> None:
        self._elastic_timeout_s = elastic_timeout_s  # None: a rank that fails is not started again
        self._key = secrets.token_hex(32)
        self._name = f"hvd-ray-{secrets.token_hex(16)}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("\0" + self._name)
        self._listener.listen()
        # Readable when the agent has ended.
        self._over, self._end = socket.socketpair()
        self._failure = ""  # of the agent
        self._stream: Optional[Stream] = None
        self._made = b""  # what every rank that is started again must be told first
        self.rank = -1

    def run_agent(self, order: Order, partition: int, environment: Dict[str, str]) -> None:
        try:
            order.run(partition, {**environment, SOCKET: self._name, KEY: self._key})
        except Exception as error:
            self._failure = f": {error}"
            raise
        finally:
            self._end.close()

    def connect(self, patience_s: float) -> None:
        """Waits for the rank, as long as its agent runs. ConnectionError: it has not called."""
        deadline = time.monotonic() + patience_s
        waiting = select.poll()
        for part in (self._listener, self._over):
            waiting.register(part, select.POLLIN)
        while True:
            ready = {number for number, _ in waiting.poll(max(0.0, 1000 * (deadline - time.monotonic())))}
            if self._listener.fileno() not in ready:
                raise ConnectionError(
                    f"its agent has ended{self._failure}" if ready else f"a rank has not called after {patience_s:g} s"
                )
            connection, _ = self._listener.accept()
            if self._is_rank(connection):
                return
            connection.close()

    def _is_rank(self, connection: socket.socket) -> bool:
        """Whether it is; strangers of this host may connect too."""
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] != os.getuid():
            return False
        connection.settimeout(_HELLO_S)
        stream = Stream(connection, self._key, "actor", "rank", self._over)
        try:
            self.rank = int(stream.receive(_HELLO_BYTES))
        except (OSError, RuntimeError):
            return False
        connection.settimeout(None)
        if self._stream is not None:
            self._stream.close()
        self._stream = stream
        return True

    def ask(self, kind: bytes, payload: bytes) -> Tuple[bytes, bytes]:
        """The rank's answer: its kind and its payload. ConnectionError when the rank is gone, and nobody starts it again."""
        if kind == MAKE:
            self._made = payload
        failed: Optional[Tuple[bytes, bytes]] = None
        while True:
            try:
                answer = self._ask(kind, payload)
                if answer[0] != ERROR or self._elastic_timeout_s is None:
                    return answer
                failed = answer
            except OSError as error:
                if self._elastic_timeout_s is None:
                    raise ConnectionError(
                        f"rank {self.rank} on {os.uname().nodename} ended in the middle of a call; unless hvdrun tells why, its "
                        "function called os._exit(0) instead of returning"
                    ) from error
            # The agent starts the rank again, or ends.
            try:
                self.connect(self._elastic_timeout_s)
                if kind != MAKE and self._made and self._ask(MAKE, self._made)[0] == ERROR:
                    continue
            except OSError as error:
                if failed is not None:
                    return failed
                raise ConnectionError(
                    f"rank {self.rank} on {os.uname().nodename} ended in the middle of a call, and was not started again: {error}"
                ) from error

    def _ask(self, kind: bytes, payload: bytes) -> Tuple[bytes, bytes]:
        self._stream.send(kind + b" " + payload)
        word, _, answer = self._stream.receive().partition(b" ")
        return word, answer


class Node:
    """The actor. Calls for one rank come on one thread, in their order."""

    def __init__(self, seats: int, gpus: int, elastic_timeout_s: Optional[float]) -> None:
        self._seats = [_Seat(elastic_timeout_s) for _ in range(seats)]
        self._gpus = gpus

    def network(self) -> str:
        return own_network()

    def run_agents(self, order: Order, first: int) -> None:
        """Runs one agent for each rank, as partitions `first`, `first` + 1, ..., until all have ended, or one has failed.

        RuntimeError says how."""
        ends: queue.Queue = queue.Queue()

        def run(number: int) -> None:
            try:
                self._seats[number].run_agent(order, first + number, self._environment_of(number))
                ends.put(None)
            except Exception as error:
                ends.put(error)

        for number in range(len(self._seats)):
            threading.Thread(target=run, args=(number,), name=f"hvd-agent-{number}", daemon=True).start()
        for _ in self._seats:
            error = ends.get()
            if error is not None:
                raise error

    def connect(self, patience_s: float) -> List[int]:
        """The ranks that the agents have started, when all have called. ConnectionError: one has not."""
        deadline = time.monotonic() + patience_s
        for seat in self._seats:
            seat.connect(max(0.0, deadline - time.monotonic()))
        return [seat.rank for seat in self._seats]

    def ask(self, number: int, kind: bytes, payload: bytes) -> Answer:
        """What the rank returned. Raises what its function raised, or ConnectionError."""
        word, answer = self._seats[number].ask(kind, payload)
        if word == ERROR:
            raise_first_failure([pickle.loads(answer)], "")
        return Answer(answer)

    def _environment_of(self, number: int) -> Dict[str, str]:
        """This actor's, with the GPUs of one rank. Which GPUs the actor may use is Ray's word."""
        environment = dict(os.environ)
        own = [gpu for gpu in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        if self._gpus and len(own) == self._gpus * len(self._seats):
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(own[number * self._gpus : (number + 1) * self._gpus])
        return environment
