"""Nodes whose processes are not those of whoever reaches them, as with sshd: an --rsh command without ssh.

far_node.py serve SOCKET    answers each connection by a shell in a session of its own; prints "up"; ends with its input
far_node.py go SOCKET HOST  carries its standard streams to such a shell; HOST is for `ps` only
"""

import os
import selectors
import socket
import sys


def serve(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(100)
    print("up", flush=True)
    while True:
        waits = selectors.DefaultSelector()
        waits.register(listener, selectors.EVENT_READ)
        waits.register(0, selectors.EVENT_READ)
        if any(key.fd == 0 for key, _ in waits.select(1)):
            return
        while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) if has_children() else None:
            pass
        try:
            listener.setblocking(False)
            connection, _ = listener.accept()
        except BlockingIOError:
            continue
        if os.fork() == 0:
            os.setsid()
            os.set_blocking(connection.fileno(), True)
            os.dup2(connection.fileno(), 0)
            os.dup2(connection.fileno(), 1)
            os.execvp("sh", ["sh"])
        connection.close()


def has_children():
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def go(path):
    far = socket.socket(socket.AF_UNIX)
    far.connect(path)
    waits = selectors.DefaultSelector()
    waits.register(0, selectors.EVENT_READ)
    waits.register(far, selectors.EVENT_READ)
    while True:
        for key, _ in waits.select():
            if key.fd == 0:
                data = os.read(0, 65536)
                if data:
                    far.sendall(data)
                else:
                    waits.unregister(0)
                    far.shutdown(socket.SHUT_WR)
            else:
                data = far.recv(65536)
                if not data:
                    return
                while data:
                    data = data[os.write(1, data):]


if __name__ == "__main__":
    try:
        serve(sys.argv[2]) if sys.argv[1] == "serve" else go(sys.argv[2])
    except (BrokenPipeError, ConnectionResetError):
        sys.exit(1)
