"""Peers that prove nothing: they talk nonsense without end, slowly, or not at all, until they are hung up on.

As a program, where the peer is a process of its own:
    hostile.py talk WORDS [announced] on standard output, as a --rsh command, after an agent's announcement or at once; goes
                                      on until its input ends
    hostile.py after COUNT COMMAND... lets the first COUNT bytes through that an agent says, and is mute then
    hostile.py rank WORDS             a rank that greets its agent, and talks then; says "up"
    hostile.py call                   says "ready", reads a line "HOST PORT", and is one caller for each of WORDS there; says
                                      "called"; goes on until its input ends
"""

import os
import socket
import struct
import subprocess
import sys
import threading

from agent import HELLO, frame, text

SSH_IGNORE = struct.pack(">IB", 44, 6) + b"\x02" + struct.pack(">I", 32) + b"i" * 32 + b"p" * 6
ANNOUNCED = b"\nHVDRUN-AGENT\n"

# name: (what is said, seconds between)
WORDS = {
    "endless text": (b"so much to say\n", 0),
    "endless bytes": (b"x" * 4096, 0),
    "lengths of 2^31": (struct.pack("<I", 1 << 31) * 4 + struct.pack(">I", 1 << 31) * 4, 0),
    "one byte a second": (b"S", 1),
    "silence": (b"", 1),
}
IGNORES = {"endless ignores": (SSH_IGNORE, 0)}


def talk(send, words, is_over=threading.Event(), first=b""):
    """Says it all by `send` until that fails, as it does when the other end hangs up."""
    said, every = {**WORDS, **IGNORES}[words]
    try:
        send(first)
        while not is_over.is_set():
            send(said)
            if every:
                is_over.wait(every)
    except OSError:
        pass


class Callers:
    """One connection for each of WORDS to an address, which talk until the block has ended."""

    def __init__(self, make):
        self.sockets = [make() for _ in WORDS]

    def __enter__(self):
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=talk, args=(each.sendall, words, self.is_over), daemon=True)
                        for each, words in zip(self.sockets, WORDS)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for each in self.sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)  # which ends a send that waits
            except OSError:
                pass
        for thread, each in zip(self.threads, self.sockets):
            thread.join()
            each.close()


class Server:
    """Listens on loopback, and says `first` and WORDS to each who calls, until the block has ended."""

    def __init__(self, words, first=b""):
        self.words, self.first = words, first
        self.was_called = threading.Event()
        self.is_over = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.callers = []

    def serve(self):
        while True:
            try:
                caller, _ = self.listener.accept()
            except OSError:
                return
            self.callers.append(caller)
            threading.Thread(target=self.answer, args=(caller,), daemon=True).start()

    def answer(self, caller):
        self.was_called.set()
        talk(caller.sendall, self.words, self.is_over, self.first)

    def __enter__(self):
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for caller in self.callers:
            caller.close()


def let_through(count, command):
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    announced = b""
    while not announced.endswith(ANNOUNCED):
        byte = child.stdout.read(1)
        announced += byte
        os.write(1, byte)
        if not byte:
            return
    os.write(1, child.stdout.read(count))
    print(f"mute after {count} bytes", file=sys.stderr, flush=True)
    while child.stdout.read1(1 << 16):  # else the agent would find its output full
        pass


def main(how, *words):
    if how == "after":
        let_through(int(words[0]), words[1:])
    elif how == "talk":
        first = ANNOUNCED if words[1:2] == ("announced",) else b""
        threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
        talk(lambda said: os.write(1, said), words[0], first=first)
    elif how == "rank":
        agent = socket.socket(socket.AF_UNIX)
        agent.connect(os.environ["HVD_AGENT_SOCKET"])
        greeting = frame(HELLO, text(os.environ["HVD_AGENT_TOKEN"].encode()) + struct.pack("<i", int(os.environ["HVD_RANK"])))
        print("up", flush=True)
        talk(agent.sendall, words[0], first=greeting)
        threading.Event().wait()
    else:
        print("ready", flush=True)
        host, port = sys.stdin.readline().split()
        with Callers(lambda: socket.create_connection((host, int(port)))):
            print("called", flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
