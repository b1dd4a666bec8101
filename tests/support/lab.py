"""Labs for tests: hosts on one machine with addresses, homes and sshds of their own. scripts/lab does the work.

    def test_something(lab3):                       # a lab of 3 nodes, shared by the module's tests
        done = lab3.run("build/bin/hvdrun", "-np", "2", "-H", "node1,node2", "hostname")
        assert done.returncode == 0, done.stderr
        assert lab3.wait_for_no_processes() == []

Use make_lab for a lab of your own. Where no lab is possible, tests that ask for one are skipped with the reason.
"""

import contextlib
import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import NamedTuple

import pytest
from patience import PATIENCE, left_of, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The system's Python where there is one: a wrapper in front of it may cost more than the lab.
PYTHON = [shutil.which("python3", path="/usr/bin") or sys.executable, "-S", str(ROOT / "scripts/lab")]
_serial = itertools.count(1)


class Process(NamedTuple):
    host: str
    pid: int  # as seen from outside the lab, so that a test can signal it
    ppid: int
    args: str


def why_not():
    """None, or the reason why this machine can have no lab."""
    done = subprocess.run([*PYTHON, "check"], capture_output=True, text=True, timeout=PATIENCE)
    return None if done.returncode == 0 else (done.stdout or done.stderr).strip()


class Lab:
    """N nodes, node1 to nodeN, and the host launcher; a context manager."""

    def __init__(self, nodes, rate=None, name=None):
        self.nodes = nodes
        self.rate = rate
        self.name = name or f"test-{os.getpid()}-{next(_serial)}"
        self.shared = pathlib.Path(os.environ.get("LAB_STATE", "/run/hvdrun-lab")) / self.name / "shared"
        self._running = []

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, *_):
        self.down()

    def command(self, *arguments):
        """The command line of scripts/lab for this lab."""
        return [*PYTHON, "--name", self.name, *map(str, arguments)]

    def _lab(self, *arguments):
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT)
        assert done.returncode == 0, f"lab {arguments}: {done.stderr or done.stdout}"
        return done.stdout

    def up(self):
        self._lab("up", self.nodes, *(["--rate", self.rate] if self.rate else []))

    def down(self):
        self._lab("down")
        for process in self._running:
            process.wait(PATIENCE)  # their commands are gone; this reaps the ones that a test left
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()

    def run(self, *command, host="launcher", **options):
        """subprocess.run() on a host, in the checkout, with output captured as text."""
        options = {"capture_output": True, "text": True, "cwd": ROOT, "timeout": PATIENCE,
                   **({} if "input" in options else {"stdin": subprocess.DEVNULL}), **options}
        return subprocess.run(self.command("run", "--host", host, "--", *command), **options)

    def popen(self, *command, host="launcher", **options):
        """subprocess.Popen() on a host. Signals pass through; pid_of() gives the command's own pid."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
                   "cwd": ROOT, **options}
        process = subprocess.Popen(self.command("run", "--host", host, "--", *command), **options)
        self._running.append(process)
        return process

    def pid_of(self, process):
        """The pid, as seen from outside, of the command that popen() started: for kill -9 and /proc."""

        def find():
            try:
                text = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                # Before it has become the command, the child is still a copy of scripts/lab, and has no words in between.
                args = _args(text[0]) if text else ""
                return int(text[0]) if args and "scripts/lab" not in args else None
            except FileNotFoundError:
                return None

        return wait_until(find, "the command has not started")

    def ps(self, *hosts, everything=False):
        """The processes of these hosts (default: all), without the lab's own."""
        rows = self._lab("ps", *hosts, *(["--all"] if everything else [])).splitlines()
        return [Process(host, int(pid), int(ppid), args)
                for host, pid, ppid, args in (row.split("\t", 3) for row in rows)]

    def wait_for_no_processes(self, *hosts):
        """Waits until the hosts run nothing; returns what is still there in the end: [] when all is well."""
        return left_of(lambda: self.ps(*hosts))

    def path(self, host, path):
        """Where a path of a host (its home, its /tmp) is for this process."""
        first = next(p for p in self.ps(host, everything=True))
        return pathlib.Path(f"/proc/{first.pid}/root") / str(path).lstrip("/")

    def addr(self, host):
        return self._lab("addr", host).strip()

    def share_keys(self, *nodes):
        """Lets the user of these nodes log in at the others, as at the launcher."""
        for node in nodes:
            made = self.run("sh", "-c", f"tar -C ~/.ssh -c . | ssh {node} 'tar -C ~/.ssh -x --exclude=authorized_keys'")
            assert made.returncode == 0, made.stderr

    def cut(self, a, b=None):
        self._lab("cut", a, *([b] if b else []))

    def heal(self, a=None, b=None):
        self._lab("heal", *[name for name in (a, b) if name])

    def clear(self):
        """Mends every cut, and ends all that runs on the hosts."""
        self.heal()
        deadline = time.monotonic() + PATIENCE
        while (left := self.ps()) and time.monotonic() < deadline:
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.05)


def _args(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


@pytest.fixture(scope="session")
def lab_possible():
    reason = why_not()
    if reason:
        pytest.skip(f"no lab on this machine: {reason}")


@pytest.fixture
def make_lab(lab_possible):
    """make_lab(nodes, rate=None): a lab that ends with the test."""
    labs = []

    def make(nodes, rate=None):
        lab = Lab(nodes, rate)
        labs.append(lab)
        lab.up()
        return lab

    yield make
    for lab in labs:
        lab.down()


def _module_lab(nodes):
    @pytest.fixture(scope="module")
    def fixture(lab_possible):
        with Lab(nodes) as lab:
            yield lab

    return fixture


lab2, lab3, lab4 = _module_lab(2), _module_lab(3), _module_lab(4)
