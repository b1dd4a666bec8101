"""Commands of scripts/gpu-check, one at a time: each has a limit, and nothing that it has started outlives it."""

import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
EACH = 90.0  # seconds: no check but the build and the sanitizer takes half of it, unless it hangs
STOPPED = 124
KILL_SECONDS = 5.0  # until what was killed is gone; what the driver holds may never be


class OutOfTime(Exception):
    """What was left of the minutes was too little."""


class Clock:
    """How long a command may run; seconds."""

    def __init__(self, minutes, each=EACH):
        self.end = time.monotonic() + 60 * minutes
        self.each = each

    def limit(self, most=None):
        """`most`: for what may take longer than others."""
        left = self.end - time.monotonic()
        if left < 5:
            raise OutOfTime("out of time; see --minutes")
        return min(left, most or self.each)


clock = Clock(9)


def set_clock(minutes, each):
    global clock
    clock = Clock(minutes, each)


class Ran:
    """What became of a command: its exit code (STOPPED at its limit), and all output."""

    def __init__(self, code, output, told=""):
        self.code, self.output, self.told = code, output, told

    def last_words(self):
        return self.told + last_words(self.output)


def last_words(output):
    """One line: where the first thread of a stack hangs, else the last."""
    hangs = re.findall(r"\(most recent call first\):\n +(File .*)", output)
    lines = [line for line in without_noise(output).splitlines() if line.strip()]
    return (hangs[-1] if hangs else lines[-1] if lines else "no output")[:300]


def without_noise(output):
    """Python ends the stacks of a process that it aborts with all modules that it has loaded."""
    return re.sub(r"^.*Extension modules: .*\n?", "", output, flags=re.M)


def cut(text, most=1500):
    """Its end, where it is longer."""
    text = without_noise(text).strip()
    return text if len(text) <= most else f"[{len(text) - most} characters before]{text[-most:]}"


def last_json(output):
    """None when there is none."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return None


def adopt_orphans():
    """From now on what descends from this process stays its descendant when its parent ends: end_others finds it."""
    set_child_subreaper = 36
    ctypes.CDLL(None).prctl(set_child_subreaper, ctypes.c_ulong(1), *[ctypes.c_ulong(0)] * 3)


def children_by_parent():
    """Of all processes that run."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has ended since
        if state != "Z":
            found.setdefault(int(parent), []).append(int(folder.name))
    return found


def descendants(spared):
    """Processes that this one has started, directly or not, but for its children `spared` and theirs."""
    children = children_by_parent()
    found = [pid for pid in children.get(os.getpid(), []) if pid not in spared]
    for pid in found:  # it grows
        found += children.get(pid, [])
    return found


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def end_others(spared):
    """Kills all descendants, those too that lead sessions of their own; how many would not die."""
    deadline = time.monotonic() + KILL_SECONDS
    killed, looks = set(), 0
    while looks < 2:  # one look may miss who changes his parent meanwhile
        left = descendants(spared)
        looks = 0 if left else looks + 1
        if time.monotonic() > deadline:
            break
        for pid in left:
            kill(pid)
        killed.update(left)
        time.sleep(0.01)
    for pid in killed:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass  # not adopted, or waited for
    return len(left)


def run(command, most=None, **options):
    """Ran, after at most `most` seconds or what the clock says. OutOfTime where it was stopped for the clock's end alone.

    Output goes through a file: a pipe is at its end only when the last who holds it has ended.
    """
    limit = clock.limit(most)
    spared = children_by_parent().get(os.getpid(), [])
    with tempfile.TemporaryFile() as file:
        try:
            process = subprocess.Popen([str(part) for part in command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.STDOUT, **options)  # fmt: skip
        except OSError as error:
            return Ran(127, str(error))
        told, is_cut_short = "", False
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code, told, is_cut_short = STOPPED, f"stopped after {limit:.0f} s", limit < (most or clock.each)
        finally:
            left = end_others(spared)
            process.poll()
        file.seek(0)
        output = file.read().decode(errors="replace")
    told += f", {left} of its processes would not die" if left else ""
    if is_cut_short:
        raise OutOfTime(f"out of time, {told}, and said last: {last_words(output)}; see --minutes")
    return Ran(code, output, told and f"{told}, and said last: ")
