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
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from horovod.ray._payload import PLACE
from horovod.ray._rank import ERROR, LOG, STOP
from horovod.ray._stream import KEY, SOCKET, Stream
from horovod.runner._agent import JoinOrder, Order, Starter
from horovod.runner._job import raise_first_failure

# A rank that has connected says who it is at once; a stranger gets this many seconds.
_HELLO_S = 10.0
_HELLO_BYTES = 100


def own_network() -> str:
    """Processes with the same word can call each other on loopback."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()} {os.stat('/proc/self/ns/net').st_ino}"


def own_place() -> str:
    """Where a rank of this actor's finds Ray."""
    import ray

    context = ray.get_runtime_context()
    return f"{context.gcs_address}\n{ray.util.get_node_ip_address()}\n{context.namespace}"


class Answer:
    """What a rank returned, as it was pickled there. Where Ray unpickles an Answer, it becomes what the rank returned."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def __reduce__(self) -> Any:
        return pickle.loads, (self._payload,)


class _Seat:
    """One agent, and the rank that it runs. Its methods but run_agent() and leave() are called on one thread."""

    def __init__(self) -> None:
        self._key = secrets.token_hex(32)
        self._name = f"hvd-ray-{secrets.token_hex(16)}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("\0" + self._name)
        self._listener.listen()
        # Readable when the agent has ended.
        self._over, self._end = socket.socketpair()
        self._failure = ""  # of the agent
        self._starter = Starter()
        self._stream: Optional[Stream] = None
        self.rank = -1

    def run_agent(self, order: Union[Order, JoinOrder], partition: int, environment: Dict[str, str]) -> None:
        try:
            self._starter.run(order, partition, {**environment, SOCKET: self._name, KEY: self._key})
        except Exception as error:
            self._failure = f": {error}"
            raise
        finally:
            self._end.close()

    def leave(self) -> None:
        """Asks the agent to leave the job, where that goes on with other ranks."""
        self._starter.terminate()

    def connect(self, patience_s: Optional[float]) -> None:
        """Waits for the rank, as long as its agent runs; None: that long. ConnectionError: it has not called."""
        deadline = None if patience_s is None else time.monotonic() + patience_s
        waiting = select.poll()
        for part in (self._listener, self._over):
            waiting.register(part, select.POLLIN)
        while True:
            left_ms = None if deadline is None else max(0.0, 1000 * (deadline - time.monotonic()))
            ready = {number for number, _ in waiting.poll(left_ms)}
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

    def ask(self, kind: bytes, payload: bytes, on_log: Callable[[bytes], None]) -> Tuple[bytes, bytes]:
        """The rank's answer: its kind and its payload. OSError when the rank is gone."""
        self._stream.send(kind + b" " + payload)
        while True:
            word, _, answer = self._stream.receive().partition(b" ")
            if word != LOG:
                return word, answer
            on_log(answer)


def _value_in(answer: bytes) -> Tuple[int, bytes]:
    """The rank that a value is of, and the value as it was pickled there."""
    rank, _, value = answer.partition(b" ")
    return int(rank), value


class Node:
    """The actor. Calls for one rank come on one thread, in their order."""

    def __init__(self, seats: int, gpus: int) -> None:
        self._seats = [_Seat() for _ in range(seats)]
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

    def run_agent(self, number: int, order: Union[Order, JoinOrder], partition: int) -> None:
        """Runs one agent to its end. RuntimeError: it has ended with another code than 0."""
        self._seats[number].run_agent(order, partition, self._environment_of(number))

    def connect(self, patience_s: float) -> List[int]:
        """The ranks that the agents have started, when all have called. ConnectionError: one has not."""
        deadline = time.monotonic() + patience_s
        for seat in self._seats:
            seat.connect(max(0.0, deadline - time.monotonic()))
        return [seat.rank for seat in self._seats]

    def ask(self, number: int, kind: bytes, payload: bytes, logs: Any = None) -> Optional[Answer]:
        """What the rank returned; what it logs goes into Ray's queue `logs`. Raises what its function raised, or
        ConnectionError."""
        seat = self._seats[number]
        try:
            word, answer = seat.ask(kind, payload, _put_into(logs))
        except OSError as error:
            raise ConnectionError(
                f"rank {seat.rank} on {os.uname().nodename} ended in the middle of a call; unless hvdrun tells why, its "
                "function called os._exit(0) instead of returning"
            ) from error
        if word == ERROR:
            raise_first_failure([pickle.loads(answer)], "")
        return None if kind == STOP else Answer(_value_in(answer)[1])

    def serve(self, number: int, calls: List[Tuple[bytes, bytes]], logs: Any = None) -> Optional[Tuple[int, bytes]]:
        """For a rank of an elastic job, as often as its agent starts it: makes the calls, and lets it end.

        When the agent has ended, what the last call returned, after the rank that it was; None: nothing."""
        seat = self._seats[number]
        last = None
        while True:
            try:
                seat.connect(None)
            except ConnectionError:
                return last
            try:
                for kind, payload in calls:
                    word, answer = seat.ask(kind, payload, _put_into(logs))
                    if word == ERROR:
                        break  # the rank ends by itself
                else:
                    last = _value_in(answer)
                    seat.ask(STOP, b"", _put_into(None))
            except OSError:
                pass  # the rank is gone, and hvdrun knows it

    def leave(self, number: int) -> None:
        """Asks an agent to leave the job."""
        self._seats[number].leave()

    def _environment_of(self, number: int) -> Dict[str, str]:
        """This actor's, with the GPUs of one rank. Which GPUs the actor may use is Ray's word, and not how many threads each rank
        has: Ray counts for all of them."""
        place = own_place()
        # The second variable is Ray's own: a first call of Ray in a function finds the cluster, and starts no other one.
        environment = {**os.environ, PLACE: place, "RAY_ADDRESS": place.partition("\n")[0]}
        environment.pop("OMP_NUM_THREADS", None)
        own = [gpu for gpu in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        if self._gpus and len(own) == self._gpus * len(self._seats):
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(own[number * self._gpus : (number + 1) * self._gpus])
        return environment


def _put_into(logs: Any) -> Callable[[bytes], None]:
    def put(item: bytes) -> None:
        if logs is not None:
            logs.put(item)

    return put
