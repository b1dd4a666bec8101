"""Stands between this host and those that it calls: relay.py PORT KEPT [ROLE AT | FORGED]

The kernel redirects connections to PORT (nft), and they are passed on to where they were meant to go. All that passes is
kept in the file KEPT. With ROLE and AT one bit of byte AT is flipped that a caller sends on a connection of that role
(1: control, 2: data), as its handshake says it. With FORGED (length, operation, sequence, swapped) one frame that a caller
sends on a plain data connection is made another, or changes places with the next one, and "forged" is said. Says
"listening", and for each connection "relayed ROLE"; goes on until its input ends.
"""

import selectors
import socket
import struct
import sys

SO_ORIGINAL_DST = 80
SO_MARK = 36
OWN_MARK = 7  # of our own connections, which are not redirected
ROLE_AT = 8  # in the caller's first message
DATA = 2
# The mark before each frame (runtime/link/link_steps.h).
MARK = struct.Struct("<4sIII")
MARK_MAGIC = b"HVDF"
FORGED_OPERATION = 40
FORGERIES = {
    "length": lambda operation, frame, size: (operation, frame, size ^ 4),
    "operation": lambda operation, frame, size: (operation + 1, frame, size),
    "sequence": lambda operation, frame, size: (operation, frame + 1, size),
}


class Forger:
    """Takes the frames of a data connection apart, and forges one of its operation FORGED_OPERATION."""

    def __init__(self, how):
        self.how = how
        self.bytes = b""
        self.has_begun = self.is_done = False

    def pass_on(self, data):
        """What is to be sent on, now that `data` has come."""
        self.bytes += data
        if not self.has_begun:
            begin = self.bytes.find(MARK_MAGIC)
            if begin < 0:
                return self.take(len(self.bytes))
            self.has_begun = True
            return self.take(begin) + self.pass_on(b"")
        sent = b""
        while not self.is_done and len(self.bytes) >= MARK.size:
            magic, operation, frame, size = MARK.unpack_from(self.bytes)
            assert magic == MARK_MAGIC
            if operation < FORGED_OPERATION:
                if len(self.bytes) < MARK.size + size:
                    return sent
                sent += self.take(MARK.size + size)
            elif self.how == "swapped":
                first = MARK.size + size
                if len(self.bytes) < first + MARK.size:
                    return sent
                second = first + MARK.size + MARK.unpack_from(self.bytes, first)[3]
                if len(self.bytes) < second:
                    return sent
                self.bytes = self.bytes[first:second] + self.bytes[:first] + self.bytes[second:]
                self.is_done = True
            else:
                self.bytes = MARK.pack(magic, *FORGERIES[self.how](operation, frame, size)) + self.bytes[MARK.size:]
                self.is_done = True
            if self.is_done:
                print("forged", flush=True)
        return sent + (self.take(len(self.bytes)) if self.is_done else b"")

    def take(self, count):
        taken, self.bytes = self.bytes[:count], self.bytes[count:]
        return taken


class Direction:
    def __init__(self, to, flips=None, how=None):
        self.to = to
        self.passed = 0
        self.role = 0
        self.flips = flips  # (role, place), or None
        self.forger = how and Forger(how)

    def pass_on(self, data, kept):
        if self.passed == 0 and len(data) >= ROLE_AT + 2:
            self.role = struct.unpack_from("<H", data, ROLE_AT)[0]
            print("relayed", self.role, flush=True)
        data = bytearray(data)
        if self.forger and self.role == DATA:
            data = self.forger.pass_on(bytes(data))
        if self.flips and self.flips[0] == self.role and 0 <= self.flips[1] - self.passed < len(data):
            data[self.flips[1] - self.passed] ^= 1
        self.passed += len(data)
        kept.write(data)
        self.to.sendall(data)


def main(port, kept_path, flips, how):
    listener = socket.create_server(("", port), backlog=64)
    print("listening", flush=True)
    waits = selectors.DefaultSelector()
    waits.register(listener, selectors.EVENT_READ)
    waits.register(sys.stdin, selectors.EVENT_READ)
    with open(kept_path, "wb") as kept:
        while True:
            for key, _ in waits.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is listener:
                    caller, _ = listener.accept()
                    where = struct.unpack("!2xH4s8x", caller.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16))
                    called = socket.socket()
                    called.setsockopt(socket.SOL_SOCKET, SO_MARK, OWN_MARK)
                    called.connect((socket.inet_ntoa(where[1]), where[0]))
                    waits.register(caller, selectors.EVENT_READ, Direction(called, flips, how))
                    waits.register(called, selectors.EVENT_READ, Direction(caller))
                    continue
                try:
                    data = key.fileobj.recv(1 << 16)
                    if data:
                        key.data.pass_on(data, kept)
                except OSError:
                    data = b""
                if not data:
                    waits.unregister(key.fileobj)
                    key.data.to.close() if key.data.to.fileno() < 0 else key.data.to.shutdown(socket.SHUT_WR)


port, kept, *spoils = sys.argv[1:]
how = spoils[0] if len(spoils) == 1 else None
main(int(port), kept, tuple(map(int, spoils)) if len(spoils) == 2 else None, how)
