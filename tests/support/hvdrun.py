"""Running the real hvdrun on this machine, for the end-to-end tests."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from patience import PATIENCE

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("HVDRUN_BIN", ROOT / "build/bin"))
HVDRUN = str(BIN / "hvdrun")
LIBHVD = str(BIN.parent / "lib/libhvd.so")
PROGRAMS = ROOT / "tests/e2e/programs"
PYTHON = [sys.executable, "-S"]


def has_libssh2():
    """Else the system's ssh is what it reaches hosts by, with words of its own."""
    return "libssh2 1." in hvdrun("--check-build").stdout


def program(name):
    return str(PROGRAMS / name)


def hvdrun(*arguments, **options):
    """subprocess.run() of hvdrun, with output captured as text."""
    options = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "cwd": ROOT, "timeout": PATIENCE,
               **options}
    return subprocess.run([HVDRUN, *map(str, arguments)], **options)


def start(*arguments, **options):
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
               "cwd": ROOT, **options}
    return subprocess.Popen([HVDRUN, *map(str, arguments)], **options)


def processes_with(marker):
    """{pid: command line} of every process whose environment holds the marker: the whole job, agents too."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker.encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:
                pass
    return found


def wait_until_gone(marker):
    """What of the marked processes is left in the end: {} when all is well."""
    deadline = time.monotonic() + PATIENCE
    while (left := processes_with(marker)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def read_until(stream, pattern, count=1):
    """Reads lines until `count` of them match; returns all lines read."""
    lines, seen, deadline = [], 0, time.monotonic() + PATIENCE
    while seen < count:
        assert time.monotonic() < deadline, f"no {pattern!r} in {lines[-20:]}"
        line = stream.readline()
        assert line, f"the stream ended before {pattern!r}: {lines[-20:]}"
        lines.append(line)
        seen += bool(re.search(pattern, line))
    return lines


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def env_with(marker, **more):
    """This process's environment with the fixture `marker`, and what is named besides."""
    name, value = marker.split("=")
    return {**os.environ, name: value, **more}
