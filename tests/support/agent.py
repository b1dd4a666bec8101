"""An agent for tests, written from runtime/rendezvous/store_wire.h and runtime/base/frame.h alone.

It is the node side of the rank-agent conversation in one thread, for ranks on this machine, so that the Python tests
can run several ranks without the launcher, and the wire has a second, independent reader.
"""

import secrets
import selectors
import socket
import struct
import threading

MAGIC, VERSION, MAX_LENGTH = 0x53445648, 5, 16 << 20
HELLO, WELCOME, EXCHANGE, EXCHANGED, NOTICE, GOODBYE, FAILURE, VISIT = 1, 2, 3, 4, 5, 6, 7, 8
HEADER = struct.Struct("<IHHI")


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


def take_text(body: bytes, at: int):
    (length,) = struct.unpack_from("<I", body, at)
    at += 4
    if at + length > len(body):
        raise ValueError("a text longer than its frame")
    return body[at : at + length], at + length


def frame(kind: int, body: bytes) -> bytes:
    return HEADER.pack(MAGIC, VERSION, kind, len(body)) + body


class _Rank:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.buffer = b""
        self.rank = None
        self.left = False
        self.is_visitor = False

    def frames(self, data: bytes):
        self.buffer += data
        while len(self.buffer) >= HEADER.size:
            magic, version, kind, length = HEADER.unpack_from(self.buffer)
            if (magic, version) != (MAGIC, VERSION) or length > MAX_LENGTH:
                raise ValueError(f"not a frame: magic {magic:#x}, version {version}, length {length}")
            if len(self.buffer) < HEADER.size + length:
                return
            body = self.buffer[HEADER.size : HEADER.size + length]
            self.buffer = self.buffer[HEADER.size + length :]
            yield kind, body


class Agent:
    """Serves `size` ranks at a unix socket until `stop`."""

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self.token = secrets.token_hex(16)
        self.errors = []
        self.failures = []  # (rank, kind, by, exit code, what) of each that was told, in order
        self._secret = secrets.token_bytes(32)
        self._exchanges = {}  # key -> {rank: value}
        self._ranks = set()
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(size)
        self._stop_here, self._stop_there = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._stop_there, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop_here.send(b"x")
        self._thread.join()
        for peer in self._ranks:
            peer.connection.close()
        for each in (self._listener, self._stop_here, self._stop_there, self._selector):
            each.close()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._stop_there:
                    return
                if key.fileobj is self._listener:
                    connection, _ = self._listener.accept()
                    peer = _Rank(connection)
                    self._ranks.add(peer)
                    self._selector.register(connection, selectors.EVENT_READ, peer)
                else:
                    self._read(key.data)

    def _read(self, peer: _Rank) -> None:
        try:
            data = peer.connection.recv(1 << 16)
            for kind, body in peer.frames(data):
                self._handle(peer, kind, body)
        except (OSError, ValueError, struct.error) as error:
            self.errors.append(error)
            data = b""
        if not data:
            self._selector.unregister(peer.connection)
            peer.connection.close()
            self._ranks.discard(peer)
            if not peer.left and peer.rank is not None and not peer.is_visitor:
                self._tell_all(f"rank {peer.rank} ended without leaving the job")

    def _handle(self, peer: _Rank, kind: int, body: bytes) -> None:
        if kind in (HELLO, VISIT) and peer.rank is None:
            token, at = take_text(body, 0)
            (peer.rank,) = struct.unpack_from("<i", body, at)
            if token.decode() != self.token or not 0 <= peer.rank < self.size:
                peer.rank = None
                raise ValueError("a Hello or Visit with a wrong token or rank")
            peer.is_visitor = kind == VISIT
            if kind == HELLO:
                peer.connection.sendall(frame(WELCOME, self._secret + b"\0"))  # it keeps the place that it was started with
        elif kind == FAILURE and peer.rank is not None:
            how, by, code = struct.unpack_from("<Bii", body)
            what, at = take_text(body, 9)
            if at + 1 != len(body) or body[at] > 1 or how > 3 or not -1 <= by < self.size or not 0 <= code <= 255:
                raise ValueError("a Failure that makes no sense")
            self.failures.append((peer.rank, how, by, code, what.decode()))
        elif kind == EXCHANGE and peer.rank is not None and not peer.is_visitor:
            key, at = take_text(body, 0)
            value, at = take_text(body, at)
            values = self._exchanges.setdefault(key, {})
            values[peer.rank] = (peer, value)
            if len(values) == self.size:
                del self._exchanges[key]
                answer = text(key) + struct.pack("<I", self.size)
                answer += b"".join(text(values[rank][1]) for rank in range(self.size))
                for waiting, _ in values.values():
                    self._tell(waiting, frame(EXCHANGED, answer))
        elif kind == GOODBYE:
            peer.left = True
        else:
            raise ValueError(f"frame {kind} from a peer of rank {peer.rank}")

    def _tell_all(self, cause: str) -> None:
        for peer in self._ranks:
            if peer.rank is not None and not peer.left and not peer.is_visitor:
                self._tell(peer, frame(NOTICE, text(cause.encode())))

    def _tell(self, peer: _Rank, words: bytes) -> None:
        """One that has ended meanwhile is no fault of the one whose message is being answered."""
        try:
            peer.connection.sendall(words)
        except OSError as error:
            self.errors.append(error)
