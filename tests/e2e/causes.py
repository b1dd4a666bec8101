"""Runs jobs in which one rank fails, and tells of how many hvdrun named the right rank and had its exit code.

By hand, for the contract of 200 of 200 on a machine that is busy (an hour or so on two cores):

    build/venv/bin/python tests/e2e/causes.py --runs 200 --busy 8 [--hosts 1,2] [--ranks 4,16] [--ways atexit,thread,sys.exit]

--hosts 2 makes a lab of two hosts (scripts/lab), and --minutes ends it early. It prints a line for each kind of job: how many
of its runs were right, the median of the time from the failure to hvdrun's first line about it, and the longest report in
lines. sys.exit raises nothing that would be told before the rank's end, 1.5 s later.
"""

import argparse
import contextlib
import os
import pathlib
import re
import statistics
import subprocess
import sys
import threading
import time
from typing import List, NamedTuple, Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from hvdrun import HVDRUN, LIBHVD, PYTHON, ROOT, program  # noqa: E402
from patience import PATIENCE  # noqa: E402

CODES = {"raise": 1, "atexit": 1, "thread": 1, "hang": 1, "hook": 1, "sys.exit": 3, "os._exit": 3, "segfault": 139}
EXCEPTIONS = ("raise", "atexit", "thread", "hang", "hook")  # the others are told by the end of the rank


class Run(NamedTuple):
    named: Optional[int]  # the rank of hvdrun's first line about a failure
    code: int
    delay: Optional[float]  # seconds from the failure to that line
    report: List[str]  # hvdrun's own lines
    err: str


def run(how, failing, ranks, lab=None, *options, words=()):
    """One job of so many ranks, on this machine or spread over the hosts of the lab. `words`: more arguments of fails.py."""
    command = [HVDRUN, "-np", str(ranks), *options]
    if lab is not None:
        share = ranks // lab.nodes
        command += ["-H", ",".join(f"node{node + 1}:{share}" for node in range(lab.nodes))]
    command += [*PYTHON, program("fails.py"), str(failing), how, *words]
    settings = {"HVD_LIBRARY": LIBHVD, "OMP_NUM_THREADS": "1"}
    if lab is not None:
        job = lab.popen("env", *(f"{name}={value}" for name, value in settings.items()), *command)
    else:
        job = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **settings}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    limit = threading.Timer(PATIENCE, job.kill)
    limit.start()
    lines = []  # (when, line)
    reader = threading.Thread(target=lambda: lines.extend((time.time(), line) for line in job.stderr))
    reader.start()
    out = job.stdout.read()
    reader.join()
    code = job.wait()
    limit.cancel()
    report = [line for _, line in lines if line.startswith("hvdrun: ") and "connected" not in line]
    first = next(((when, re.match(r"hvdrun: rank (\d+) on ", line)) for when, line in lines
                  if line.startswith("hvdrun: rank ")), None)
    err = "".join(line for _, line in lines)
    failed_at = re.search(r"failed at ([\d.]+)", out + err)
    delay = first[0] - float(failed_at[1]) if first and failed_at else None
    named = int(first[1][1]) if first and first[1] else None
    return Run(named, code, delay, report, err)


@contextlib.contextmanager
def busy(count):
    """So many programs that never rest, beside the jobs: in sessions of their own, as other users' are, since the kernel
    shares the processors among sessions first."""
    programs = [subprocess.Popen([*PYTHON, "-c", "while True: pass"], start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for each in programs:
            each.kill()
            each.wait()


class Kind:
    """One kind of job, and what came of its runs."""

    def __init__(self, how, ranks, hosts, lab):
        self.how, self.ranks, self.hosts, self.lab = how, ranks, hosts, lab
        self.done, self.right, self.longest, self.delays = 0, 0, 0, []

    def run_once(self, grace):
        failing = (self.done * 7 + 2) % self.ranks
        done = run(self.how, failing, self.ranks, self.lab, "--grace", str(grace))
        is_right = (done.named, done.code) == (failing, CODES[self.how])
        self.done += 1
        self.right += is_right
        self.delays += [done.delay] if done.delay is not None else []
        self.longest = max(self.longest, len(done.report))
        if not is_right:
            print(f"wrong: rank {failing} failed ({self.how}), named {done.named}, code {done.code}\n{done.err}", flush=True)

    def tell(self):
        print(f"{self.how:9} {self.ranks:2} ranks on {self.hosts} host(s): {self.right} of {self.done} right, median "
              f"{median_text(self.delays)}, report of at most {self.longest} lines", flush=True)


def median_text(delays):
    return f"{statistics.median(delays) * 1000:.1f} ms" if delays else "-"


def main():
    def numbers(text):
        return [int(number) for number in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="of all kinds together")
    parser.add_argument("--minutes", type=float, default=120, help="no run begins after so many")
    parser.add_argument("--busy", type=int, default=8)
    parser.add_argument("--hosts", type=numbers, default=[1, 2])
    parser.add_argument("--ranks", type=numbers, default=[4, 16])
    parser.add_argument("--ways", type=lambda text: text.split(","), default=["atexit", "thread", "sys.exit"])
    parser.add_argument("--grace", type=int, default=30, help="seconds; what ends by itself is waited for so long")
    given = parser.parse_args()
    from lab import Lab

    last = time.monotonic() + 60 * given.minutes
    with contextlib.ExitStack() as stack:
        labs = {hosts: stack.enter_context(Lab(hosts)) if hosts > 1 else None for hosts in given.hosts}
        kinds = [Kind(how, ranks, hosts, labs[hosts]) for hosts in given.hosts for ranks in given.ranks for how in given.ways]
        stack.enter_context(busy(given.busy))
        # One of each kind after the other, so that all have their share where the time is over first.
        for number in range(given.runs):
            if time.monotonic() > last:
                break
            kinds[number % len(kinds)].run_once(given.grace)
    for kind in kinds:
        kind.tell()
    done, right = sum(kind.done for kind in kinds), sum(kind.right for kind in kinds)
    delays = [delay for kind in kinds if kind.how in EXCEPTIONS for delay in kind.delays]
    print(f"{right} of {done} right; from an exception to hvdrun's line {median_text(delays)}")
    return 0 if right == done > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
