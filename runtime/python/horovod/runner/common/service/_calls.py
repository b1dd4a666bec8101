"""Calls over TCP between processes that share a key: JSON, each message with a MAC, nothing unpickled.

A connection carries one call. The server begins with a random number, which the MAC of the request covers; the MAC of the
answer covers the request's. So nobody without the key can call, answer, or use again what somebody else has sent.
"""

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import socketserver
import struct
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from horovod.runner.common.util.timeout import TimeoutException

Addresses = Mapping[str, Sequence[Tuple[str, int]]]

_LIMIT = 64 * 1024
_MAC_BYTES = 32
# The time in seconds to connect, or to receive a message that has begun or is due.
_PATIENCE_S = 30.0
# At most so many callers that have not proven themselves are heard at a time. Each of them has a thread.
_MOST_UNPROVEN = 512
_ERRORS = {kind.__name__: kind for kind in (IndexError, ValueError, TimeoutException, RuntimeError)}


def _proof(key: bytes, what: bytes, *parts: bytes) -> bytes:
    mac = hmac.new(key, what, hashlib.sha256)
    for part in parts:
        mac.update(part)
    return mac.digest()


def _receive(connection: socket.socket, size: int, until: float) -> bytes:
    """TimeoutError at `until`, by the monotonic clock: one who sends a byte now and then has no more time than others."""
    data = b""
    while len(data) < size:
        connection.settimeout(max(until - time.monotonic(), 0.001))
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the other side closed the connection")
        data += more
    return data


def _send_message(connection: socket.socket, proof: bytes, payload: bytes) -> None:
    connection.sendall(struct.pack("!I", len(payload)) + proof + payload)


def _receive_message(connection: socket.socket, until: float) -> Tuple[bytes, bytes]:
    (size,) = struct.unpack("!I", _receive(connection, 4, until))
    if size > _LIMIT:
        raise ConnectionError(f"a message of {size} bytes, more than the {_LIMIT} that are allowed")
    return _receive(connection, _MAC_BYTES, until), _receive(connection, size, until)


class _Handler(socketserver.BaseRequestHandler):
    server: "Server"

    def handle(self) -> None:
        self.request.settimeout(_PATIENCE_S)
        try:
            self._answer()
        except OSError:
            pass  # the caller is gone, or was none; there is nobody to tell

    def _answer(self) -> None:
        number = secrets.token_bytes(_MAC_BYTES)
        self.request.sendall(number)
        proof, payload = _receive_message(self.request, time.monotonic() + _PATIENCE_S)
        if not hmac.compare_digest(proof, _proof(self.server.key, b"call", number, payload)):
            return
        self.server.note_proven(self.request)
        self.request.settimeout(_PATIENCE_S)
        call = json.loads(payload)
        try:
            answer = {"result": self.server.functions[call["function"]](*call["arguments"])}
        except Exception as error:
            answer = {"error": type(error).__name__, "text": str(error.args[0] if error.args else error)}
        payload = json.dumps(answer).encode()
        _send_message(self.request, _proof(self.server.key, b"answer", proof, payload), payload)


class Server(socketserver.ThreadingTCPServer):
    """Server answers calls of the given functions, each on a thread of its own, until close()."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def __init__(self, functions: Dict[str, Callable], key: bytes, nics: Optional[Iterable[str]]) -> None:
        self.functions, self.key = functions, key
        self._interfaces = _interface_addresses(None if nics is None else set(nics))
        self._open_calls = 0
        self._unproven: Dict[Any, None] = {}  # their connections, the oldest first
        self._changed = threading.Condition()
        only_loopback = all(address.startswith("127.") for address in self._interfaces.values())
        super().__init__(("127.0.0.1" if only_loopback else "", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="hvd-calls", daemon=True)
        self._thread.start()

    def addresses(self) -> Dict[str, List[Tuple[str, int]]]:
        """Returns where it listens, by interface."""
        return {name: [(address, self.server_address[1])] for name, address in self._interfaces.items()}

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._open_calls += 1
            if len(self._unproven) >= _MOST_UNPROVEN:
                self._hang_up(next(iter(self._unproven)))
            self._unproven[request] = None
        super().process_request(request, client_address)

    def _hang_up(self, stranger: Any) -> None:
        """Its thread sees the end, and closes the connection."""
        del self._unproven[stranger]
        with contextlib.suppress(OSError):  # it has left meanwhile
            stranger.shutdown(socket.SHUT_RDWR)

    def note_proven(self, request: Any) -> None:
        with self._changed:
            self._unproven.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        with self._changed:
            self._unproven.pop(request, None)
        super().shutdown_request(request)
        with self._changed:
            self._open_calls -= 1
            self._changed.notify_all()

    def close(self, patience_s: float = 5.0) -> None:
        """Ends it, after the calls that are being answered."""
        self.shutdown()
        with self._changed:
            self._changed.wait_for(lambda: self._open_calls == 0, patience_s)
        self.server_close()


class Caller:
    """Caller calls a server by any of its addresses."""

    def __init__(self, addresses: Addresses, key: bytes) -> None:
        places = [tuple(place) for _, of_interface in addresses.items() for place in of_interface]
        if not places:
            raise ValueError("there is no address to call; the server has found no network interface that it may use")
        # Loopback comes last, because on another host it names that host itself.
        self._places = sorted(places, key=lambda place: place[0].startswith("127."))
        self._key = key
        # The address by which the server's host knows this host; "localhost" until a call has shown it.
        self.own_address = "localhost"

    def call(self, function: str, *arguments: Any, takes_s: float = 0.0) -> Any:
        """Returns the result of the function there. `takes_s`: for so long it may wait by itself.

        Raises:
            What the function raised: IndexError, ValueError, TimeoutException, or RuntimeError for all else.
            ConnectionError: no address has answered with the key.
        """
        payload = json.dumps({"function": function, "arguments": arguments, "number": secrets.token_hex(16)}).encode()
        failures = []
        for place in self._places:
            try:
                answer = self._call_at(place, payload, takes_s)
                break
            except OSError as error:
                failures.append(f"{place[0]}:{place[1]}: {error}")
        else:
            raise ConnectionError(f"{function}: no answer from {'; '.join(failures)}. Is the service running, and is this its key?")
        # The address that answered is tried first from now on.
        self._places = [place] + [other for other in self._places if other != place]
        if "error" in answer:
            raise _ERRORS.get(answer["error"], RuntimeError)(answer["text"])
        return answer["result"]

    def _call_at(self, place: Tuple[str, int], payload: bytes, takes_s: float) -> Dict[str, Any]:
        with socket.create_connection(place, _PATIENCE_S) as connection:
            own = connection.getsockname()[0]
            number = _receive(connection, _MAC_BYTES, time.monotonic() + _PATIENCE_S)
            proof = _proof(self._key, b"call", number, payload)
            _send_message(connection, proof, payload)
            answer_proof, answer = _receive_message(connection, time.monotonic() + takes_s + _PATIENCE_S)
        if not hmac.compare_digest(answer_proof, _proof(self._key, b"answer", proof, answer)):
            raise ConnectionError("the answer does not come from a process with this key")
        self.own_address = own
        return json.loads(answer)


def _interface_addresses(nics: Optional[set]) -> Dict[str, str]:
    """Returns the IPv4 address of each interface that has one, loopback last."""
    import fcntl

    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            if nics is not None and name not in nics:
                continue
            try:
                SIOCGIFADDR = 0x8915
                answer = fcntl.ioctl(asking, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found[name] = socket.inet_ntoa(answer[20:24])
            except OSError:
                continue  # it is down, or has no address
    if not found:
        there = ", ".join(name for _, name in socket.if_nameindex())
        raise ValueError(f"none of the interfaces {sorted(nics or ())} has an IPv4 address here; there are: {there}")
    return dict(sorted(found.items(), key=lambda item: item[1].startswith("127.")))
