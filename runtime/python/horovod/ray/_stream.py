"""Messages between an actor and a rank of its host, over a socket without a name in the file system.

Each message has a length, and a MAC of a key that only both ends have, because what it carries is unpickled.
"""

import select
import socket
import struct
import threading
from typing import Optional

from horovod.runner._exchange import opened, sealed

# The variables by which a rank finds its actor.
SOCKET = "HVD_RAY_SOCKET"
KEY = "HVD_RAY_KEY"

_LENGTH = struct.Struct("!Q")
_PIECE_BYTES = 1 << 20


class Stream:
    """One end: `own` and `other` name the ends. When `over` becomes readable, the other end is gone, though a child of it may
    still hold its socket."""

    def __init__(self, connection: socket.socket, key: str, own: str, other: str, over: Optional[socket.socket] = None) -> None:
        self._connection = connection
        self._key = key
        self._own, self._other = own, other
        self._over = over
        self._sent = self._received = 0
        self._sending = threading.Lock()

    def send(self, payload: bytes) -> None:
        """OSError when the other end is gone. It may be called on any thread."""
        with self._sending:
            message = sealed(self._key, f"message {self._sent} of the {self._own}", payload)
            self._sent += 1
            self._connection.sendall(_LENGTH.pack(len(message)))
            self._connection.sendall(message)

    def receive(self, most: Optional[int] = None) -> bytes:
        """Waits for a message, as long as both ends live.

        OSError: the other end is gone. RuntimeError: it has not sent this message, or its text has more than `most` bytes."""
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if most is not None and size > most:
            raise RuntimeError(f"a message of {size} bytes, more than the {most} that are allowed")
        message = opened(self._key, f"message {self._received} of the {self._other}", self._read(size))
        self._received += 1
        return message

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._wait()
            piece = self._connection.recv(min(size - len(data), _PIECE_BYTES))
            if not piece:
                raise ConnectionError(f"the {self._other} is gone")
            data += piece
        return bytes(data)

    def _wait(self) -> None:
        if self._over is None:
            return  # recv() waits
        waiting = select.poll()
        for part in (self._connection, self._over):
            waiting.register(part, select.POLLIN)
        ready = {number for number, _ in waiting.poll()}
        if self._connection.fileno() not in ready:
            raise ConnectionError(f"the {self._other} is gone")

    def close(self) -> None:
        self._connection.close()
