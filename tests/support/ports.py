"""Ports for programs that cannot choose one themselves and say which."""

import contextlib
import errno
import pathlib
import random
import socket


def free_ports(count):
    """Ports of this machine that nobody uses now. They are below those that the kernel gives to whoever asks for any, so that
    no other program of the tests gets one of them before it is used."""
    above = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    dice, found = random.SystemRandom(), []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            # Ray gives its workers those below 20,000. Where the kernel may give all, it chooses.
            port = dice.randrange(max(1024, above - 10_000), above) if above > 2048 else 0
            one = stack.enter_context(socket.socket())
            try:
                one.bind(("", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                found.append(one.getsockname()[1])
    return found
