"""The job service for the end-to-end tests: one state folder of its own for each test, and nothing left running."""

import json
import os
import re
import signal
import sqlite3
import subprocess

from hvdrun import HVDRUN, ROOT, hvdrun, processes_with, start, wait_until_gone, without_copies
from patience import PATIENCE, wait_until

# Nodes of their own that are all this machine.
HOSTS = [f"127.0.0.{i}" for i in range(1, 5)]
# For commands of a job: they go on when the test has made the file.
GATE = "until [ -e gate ]; do sleep 0.05; done"


class Service:
    def __init__(self, path, marker):
        self.path = path
        self.state = path / "state"
        name, value = marker.split("=")
        self.marker = marker
        self.env = {**os.environ, "XDG_STATE_HOME": str(self.state), "HOME": str(path / "home"), name: value}
        (path / "home").mkdir(exist_ok=True)

    def __call__(self, *arguments, **options):
        return hvdrun(*arguments, **{"env": self.env, "cwd": self.path, **options})

    def ok(self, *arguments, **options):
        done = self(*arguments, **options)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def start(self, *arguments, **options):
        return start(*arguments, **{"env": self.env, "cwd": self.path, **options})

    def file(self, text, name="job.yaml"):
        (self.path / name).write_text(text if isinstance(text, str) else json.dumps(text))
        return self.path / name

    def cluster(self, name="lab", hosts=HOSTS, **more):
        """`defaults`: a dead supervisor's agents give up at once, so that tests need not wait for them."""
        defaults = {"reconnectTimeout": 0, "grace": 0.5, **more.pop("defaults", {})}
        return self.ok("cluster", "add", name, "-f", self.file({"hosts": list(hosts), "defaults": defaults, **more}, f"{name}.json"))

    def submit(self, text, *more, name="job.yaml"):
        return json.loads(self.ok("submit", "--json", "-f", self.file(text, name), *more))

    def show(self, job, field=None):
        text = self.ok("show", job, *(["--field", field] if field else ["--json"]))
        return text.rstrip("\n") if field else json.loads(text)

    def state_of(self, job):
        return self.show(job, "executionState")

    wait_for = staticmethod(wait_until)

    def wait_for_state(self, job, *states):
        return self.wait_for(lambda: self.state_of(job) in states, lambda: f"{job} is {self.state_of(job)}, not {states}")

    def counts(self, name="lab"):
        counts = json.loads(self.ok("cluster", "show", name, "--field", "nodeStateCounts"))
        return {key.removesuffix("NodeCount"): count for key, count in counts.items() if count}

    def supervisors(self):
        """{job number: pid}."""
        looks = {pid: args for pid, args in processes_with(self.marker).items() if re.search(r"hvdrun supervise \S+ \d+$", args)}
        return {int(looks[pid].split()[-1]): pid for pid in without_copies(looks)}

    def kill_supervisors(self, *numbers):
        """At once: none of them notices another's death."""
        pids = self.supervisors()
        for signo in (signal.SIGSTOP, signal.SIGKILL):
            for number in numbers:
                os.kill(pids[number], signo)

    def files_with(self, *words):
        """Of the state, those in which one of the words stands. One that goes away meanwhile has none."""
        found = []
        for path in self.state.rglob("*"):
            try:
                text = path.read_bytes() if path.is_file() else b""
            except FileNotFoundError:
                continue
            found += [path] if any(word.encode() in text for word in words) else []
        return found

    def records(self):
        """The database, in a transaction; whoever else writes there is waited for."""
        return sqlite3.connect(self.state / "hvdrun/service/jobs.db", timeout=PATIENCE)

    def end(self):
        """Stops what the test has left, and says whether something outlives that."""
        for pid in list(self.supervisors().values()):
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        return wait_until_gone(self.marker)


def run_shell(service, script):
    """A shell of a user's own, whose commands find `hvdrun`."""
    return subprocess.Popen(["bash", "-c", script], env={**service.env, "PATH": f"{os.path.dirname(HVDRUN)}:/usr/bin:/bin"},
                            cwd=service.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


__all__ = ["GATE", "HOSTS", "ROOT", "Service", "run_shell"]
