"""Running the real hvdrun on this machine, for the end-to-end tests."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

from patience import PATIENCE, left_of

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


def old_kernel(first, last, name):
    """The words before a command that is to meet a kernel without these system calls; see old_kernel.py."""
    import pytest

    words = [sys.executable, str(ROOT / "tests/support/old_kernel.py"), str(first), str(last), name]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"system calls cannot be refused here: {tried.stderr.strip()}")
    return words


def without_progress(err):
    """hvdrun's standard error without what it tells of a start that takes it longer than 5 s, as on a busy machine it may."""
    return re.sub(r"^hvdrun: \d+(/\d+)? hosts? connected\b.*\n", "", err, flags=re.M)


def hvdrun(*arguments, **options):
    """subprocess.run() of hvdrun, with output captured as text; without_progress()."""
    options = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "cwd": ROOT, "timeout": PATIENCE,
               **options}
    done = subprocess.run([HVDRUN, *map(str, arguments)], **options)
    if isinstance(done.stderr, str):
        done.stderr = without_progress(done.stderr)
    return done


class Started(subprocess.Popen):
    """A `with` of it that fails does not wait for the job, whose ranks may sleep for long."""

    def __exit__(self, kind, *error):
        if kind:
            self.kill()
        return super().__exit__(kind, *error)


def start(*arguments, **options):
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
               "cwd": ROOT, **options}
    return Started([HVDRUN, *map(str, arguments)], **options)


def args_of(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()


def processes_with(marker):
    """{pid: command line} of every process whose environment holds the marker: the whole job, agents too."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker.encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = args_of(entry.name)
            except OSError:
                pass
    return found


def forks_since_exec(pid):
    """How many forks a process is away from the last exec: 0 where it was itself the one that exec'ed. None: it is gone."""
    forked_not_execed = 0x40  # PF_FORKNOEXEC, in the flags that proc(5) has
    count = 0
    while pid:
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        if not int(fields[6]) & forked_not_execed:
            break
        count, pid = count + 1, int(fields[1])
    return count


def without_copies(looks, forks=0):
    """Of processes, {pid: command line}, those that are what they look like: a child looks like its parent until it has become
    another program, and who kills such a child has killed nobody who matters. `forks`: 1 for agents, which are forks of their
    guardians."""
    found = []
    for pid, args in looks.items():
        try:
            # In this order: a child that looked like its parent may have become another program meanwhile.
            if (since := forks_since_exec(pid)) is not None and since <= forks and args_of(pid).split() == args.split():
                found.append(pid)
        except OSError:
            pass  # it is gone
    return found


def guardian_and_agent(marker):
    """The pids of the agent of a job on this machine: its guardian's, and its own."""
    looks = {pid: args for pid, args in processes_with(marker).items() if "hvdrun-agent" in args}
    (guardian,) = without_copies(looks)
    (agent,) = [pid for pid in without_copies(looks, 1) if pid != guardian]
    return guardian, agent


def wait_until_gone(marker):
    """What of the marked processes is left in the end: {} when all is well."""
    return left_of(lambda: processes_with(marker))


@contextlib.contextmanager
def patiently(describe):
    """The test fails with what `describe` returns if its block takes longer than PATIENCE, even within a read that blocks."""

    def fail(*_):
        raise AssertionError(describe())

    if threading.current_thread() is not threading.main_thread():
        yield  # a signal's handler runs in the main thread only
        return
    before, began = signal.signal(signal.SIGALRM, fail), time.monotonic()
    left, again = signal.setitimer(signal.ITIMER_REAL, PATIENCE)  # the process has one such timer, which limits the whole test
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 0.001), again)


def read_until(stream, pattern, count=1):
    """Reads lines until `count` of them match; returns all lines read."""
    lines, seen = [], 0
    with patiently(lambda: f"no {pattern!r} in {lines[-20:]}"):
        while seen < count:
            line = stream.readline()
            assert line, f"the stream ended before {pattern!r}: {lines[-20:]}"
            lines.append(line)
            seen += bool(re.search(pattern, line))
    return lines


def read_until_each(stream, size):
    """Reads tagged lines until each of the ranks (10 at most) has printed one; returns all lines read."""
    lines = []
    while len({line[:3] for line in lines}) < size:
        lines += read_until(stream, r"^\[\d\]<stdout>:")
    return lines


def end_pacing(marker):
    """Lets the ranks that run `pace_lines.py on` end, which have printed until now, however slow this machine is."""
    ranks = [pid for pid, args in processes_with(marker).items() if args.startswith(sys.executable) and "pace_lines.py on" in args]
    for pid in ranks:
        os.kill(pid, signal.SIGUSR1)


def check_paced(printed, size):
    """Of each rank's tagged lines all are there, once and in order."""
    for rank in map(str, range(size)):
        *lines, last = [line.removeprefix(f"[{rank}]<stdout>:") for line in printed if line[1] == rank]
        assert lines == [f"{rank} {i} ".ljust(99, "x") for i in range(len(lines))]
        assert last == f"{rank} end {len(lines)}"


def replace_hosts(file, hosts):
    """Puts these hosts, each as "node1:2", into a file that is read at any time."""
    fresh = file.with_suffix(".new")
    fresh.write_text("".join(f"{host}\n" for host in hosts))
    fresh.rename(file)


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def env_with(marker, **more):
    """This process's environment with the fixture `marker`, and what is named besides."""
    name, value = marker.split("=")
    return {**os.environ, name: value, **more}
