"""Who can connect to whom: the sockets of horovod.spark.check().

The driver listens while the check runs, and each task does. Who connects proves by a word of this check that he belongs to
it, and what a stranger sends is thrown away. No port stays open afterwards.
"""

import dataclasses
import secrets
import socket
import threading
from typing import Any, Dict, List, Tuple

# The time in seconds for one connection to be made or answered.
_PATIENCE_S = 5.0
# Each task calls at most this many others; more would take long and add little.
_MOST_CALLED = 16
_LONGEST_LINE = 512


@dataclasses.dataclass
class Call:
    """Where the driver listens, and this check's word."""

    addresses: List[str]
    port: int
    token: str = dataclasses.field(repr=False)


class _Listener:
    """Accepts connections on a thread until it is closed. A caller sends a line, and gets one."""

    def __init__(self, host: str, token: str) -> None:
        self._token = token
        self._socket = socket.create_server((host, 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="hvd-check", daemon=True)
        self._thread.start()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept()
        except OSError:
            pass
        self._socket.close()
        self._thread.join(2 * _PATIENCE_S)

    def _serve(self) -> None:
        while True:
            try:
                caller, _address = self._socket.accept()
            except OSError:
                return
            # Beside each other: an answer may take as long as a connection that a firewall drops.
            threading.Thread(target=self._hear, args=(caller,), name="hvd-check-caller", daemon=True).start()

    def _hear(self, caller: socket.socket) -> None:
        with caller:
            caller.settimeout(_PATIENCE_S)
            try:
                token, _, rest = _read_line(caller).partition(" ")
                if secrets.compare_digest(token.encode(), self._token.encode()):
                    caller.sendall(f"{self.answer(rest)}\n".encode())
            except OSError:
                pass  # a stranger, or one that has gone

    def answer(self, rest: str) -> str:
        return "ok"


class DriverListener(_Listener):
    """Of the driver: it connects back to each task that has called."""

    def __init__(self, session: Any) -> None:
        super().__init__("127.0.0.1" if session.is_local else "", secrets.token_hex(16))
        addresses = ["127.0.0.1"] if session.is_local else _own_addresses(session.conf("spark.driver.host", ""))
        self.call = Call(addresses, self.port, self._token)

    def answer(self, rest: str) -> str:
        host, _, port = rest.rpartition(":")
        return _why_not_reached(host, int(port), self._token) or "ok"


class TaskListener(_Listener):
    """Of a task."""

    def __init__(self, token: str) -> None:
        super().__init__("", token)
        self.token = token


def call_driver(call: Call, listener: TaskListener) -> Tuple[str, str]:
    """Why this task cannot connect to the driver, and why the driver cannot connect to it; empty: it can."""
    failures = []
    for address in call.addresses:
        try:
            with socket.create_connection((address, call.port), _PATIENCE_S) as driver:
                driver.settimeout(2 * _PATIENCE_S)  # it tries to connect back meanwhile
                own = driver.getsockname()[0]
                driver.sendall(f"{call.token} {own}:{listener.port}\n".encode())
                answer = _read_line(driver)
                if answer:
                    return "", "" if answer == "ok" else answer
                failures.append(f"{address}:{call.port}: another program answers there")
        except OSError as error:
            failures.append(f"{address}:{call.port}: {error}")
    return "; ".join(failures) or "the driver's machine has no address", ""


def call_others(partition: int, listener: TaskListener) -> Dict[int, str]:
    """Which other tasks this one cannot connect to, and why. In a barrier stage."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    hosts = [info.address.rpartition(":")[0] or info.address for info in context.getTaskInfos()]
    ports = [int(text) for text in context.allGather(str(listener.port))]
    count = len(ports)
    unreached = {}
    for step in range(1, min(count, _MOST_CALLED + 1)):
        other = (partition + step) % count
        why = _why_not_reached(hosts[other], ports[other], listener.token)
        if why:
            unreached[other] = why
    context.barrier()  # nobody stops listening before all have called
    return unreached


def _why_not_reached(host: str, port: int, token: str) -> str:
    try:
        with socket.create_connection((host, port), _PATIENCE_S) as other:
            other.settimeout(_PATIENCE_S)
            other.sendall(f"{token} \n".encode())
            return "" if _read_line(other) == "ok" else f"{host}:{port}: another program answers there"
    except OSError as error:
        return f"{host}:{port}: {error}"


def _read_line(connection: socket.socket) -> str:
    line = b""
    while not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
        piece = connection.recv(_LONGEST_LINE)
        if not piece:
            break
        line += piece
    return line.decode(errors="replace").strip("\n")


def _own_addresses(told: str) -> List[str]:
    """This machine's as executors may know it: what Spark uses, and those of its name."""
    found = [told] if told else []
    try:
        found += [info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)]
    except OSError:
        pass  # the machine's name means nothing here
    return list(dict.fromkeys(found))
