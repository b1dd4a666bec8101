"""Stands between this host and those that it calls: relay.py PORT KEPT [ROLE AT]

The kernel redirects connections to PORT (nft), and they are passed on to where they were meant to go. All that passes is
kept in the file KEPT. With ROLE and AT one bit of byte AT is flipped that a caller sends on a connection of that role
(1: control, 2: data), as its handshake says it. Says "listening", and for each connection "relayed ROLE"; goes on until its
input ends.
"""

import selectors
import socket
import struct
import sys

SO_ORIGINAL_DST = 80
SO_MARK = 36
MARK = 7  # of our own connections, which are not redirected
ROLE_AT = 8  # in the caller's first message


class Direction:
    def __init__(self, to, flips):
        self.to = to
        self.passed = 0
        self.role = 0
        self.flips = flips  # (role, place), or None

    def pass_on(self, data, kept):
        if self.passed == 0 and len(data) >= ROLE_AT + 2:
            self.role = struct.unpack_from("<H", data, ROLE_AT)[0]
            print("relayed", self.role, flush=True)
        data = bytearray(data)
        if self.flips and self.flips[0] == self.role and 0 <= self.flips[1] - self.passed < len(data):
            data[self.flips[1] - self.passed] ^= 1
        self.passed += len(data)
        kept.write(data)
        self.to.sendall(data)


def main(port, kept_path, flips):
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
                    called.setsockopt(socket.SOL_SOCKET, SO_MARK, MARK)
                    called.connect((socket.inet_ntoa(where[1]), where[0]))
                    waits.register(caller, selectors.EVENT_READ, Direction(called, flips))
                    waits.register(called, selectors.EVENT_READ, Direction(caller, None))
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


port, kept, *flips = sys.argv[1:]
main(int(port), kept, tuple(map(int, flips)) or None)
