"""Something is killed or cut at a random moment of a job on two hosts: it never hangs, leaves nothing, and names a cause.

HVD_CHAOS_RUNS: how many (20). HVD_CHAOS_SEED: those of an earlier run; a failure tells it.
"""

import os
import pathlib
import random
import re
import signal
import sys
import threading
import time

import pytest

from hvdrun import HVDRUN, LIBHVD, program, without_copies
from lab import wait_until
from patience import PATIENCE

RUNS = int(os.environ.get("HVD_CHAOS_RUNS", "20"))
SEED = os.environ.get("HVD_CHAOS_SEED") or str(time.time_ns())
AGENT = r"(hvdrun-agent|/agent-[0-9a-f]+)\b"


def takes_signals(pid):
    """It has blocked SIGTERM, to read it when it likes; or it has ended already."""
    try:
        blocked = re.search(r"SigBlk:\s*([0-9a-f]+)", pathlib.Path(f"/proc/{pid}/status").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return True
    return blocked is None or int(blocked[1], 16) >> (signal.SIGTERM - 1) & 1


class Victim:
    """A job, what it has said so far, and whom of it one can hurt."""

    def __init__(self, lab, *options):
        self.lab = lab
        self.job = lab.popen("env", f"HVD_LIBRARY={LIBHVD}", HVDRUN, "-np", "4", "-H", "node1:2,node2:2", "--grace", "2",
                             "--reconnect-timeout", "6", *options, sys.executable, "-S", program("busy.py"))
        # Before it takes signals itself, one ends it without a word: nothing has begun.
        pid = lab.pid_of(self.job)
        wait_until(lambda: takes_signals(pid), "hvdrun has not begun")
        self.said = {"stdout": "", "stderr": ""}
        self.readers = [threading.Thread(target=self.read, args=(name,)) for name in self.said]
        for reader in self.readers:
            reader.start()

    def read(self, name):
        # Only the end of what the ranks print is kept.
        for line in getattr(self.job, name):
            self.said[name] = self.said[name][-100_000:] + line

    def kill_one(self, dice, pattern, forks=0):
        """False: there was none any more, or none yet."""
        looks = {p.pid: p.args for p in self.lab.ps("node1", "node2") if re.search(pattern, p.args) and "sshd" not in p.args}
        found = without_copies(looks, forks)
        try:
            os.kill(dice.choice(found), signal.SIGKILL)
        except (IndexError, ProcessLookupError):
            return False
        return True

    def break_connection(self, dice):
        found = [p.pid for p in self.lab.ps("node1", "node2") if re.search(r"sshd: .*(notty|\broot\b)", p.args)]
        try:
            os.kill(dice.choice(found), signal.SIGKILL)
        except (IndexError, ProcessLookupError):
            return False
        return True

    def end(self):
        """Its exit code; waits for it."""
        self.job.wait(PATIENCE)
        for reader in self.readers:
            reader.join()
        return self.job.returncode


def hurt(victim, dice, what):
    """Does it, and returns what the user must be told then (a pattern), and the exit codes that are right."""
    if what == "signal":
        number = dice.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
        victim.job.send_signal(number)
        return r"", {128 + number}
    if what == "launcher":
        os.kill(victim.lab.pid_of(victim.job), signal.SIGKILL)
        return r"", {-signal.SIGKILL, 128 + signal.SIGKILL}
    if what == "rank" and victim.kill_one(dice, r"busy\.py"):
        return r"rank \d", {137, 1}  # 1: another rank heard of it first, and ended with its error
    if what == "agent" and victim.kill_one(dice, AGENT, forks=1):
        return r"node[12]", {1, 241, 242, 243}  # an agent or its guardian; 1: a rank elsewhere heard of it first
    if what == "connection" and victim.break_connection(dice):
        time.sleep(dice.uniform(0, 1))
    if what == "cut":
        node = dice.choice(["node1", "node2"])
        victim.lab.cut(node)
        time.sleep(dice.uniform(0, 3))
        victim.lab.heal(node)
    # It goes on, or has ended for a reason that it tells; if it goes on it is asked to end.
    victim.job.send_signal(signal.SIGTERM)
    return r"", {143, 1, 137, 241, 242, 243}


# A tree: node1 reaches node2, by a key of its own.
@pytest.mark.parametrize("options, runs", [([], RUNS), (["--fanout", "1"], RUNS // 2)], ids=["flat", "tree"])
def test_whatever_is_killed_or_cut_the_job_ends_names_a_cause_and_leaves_nothing(make_lab, options, runs):
    lab = make_lab(2)
    if options:
        lab.share_keys("node1")
    dice = random.Random(SEED)
    for run in range(runs):
        what = dice.choice(["signal", "launcher", "rank", "rank", "agent", "agent", "connection", "cut"])
        told = f"run {run} of seed {SEED}: {what}"
        victim = Victim(lab, *options)
        moment = dice.uniform(0, 2)
        time.sleep(moment)  # sleeps: the moment is what is tried
        pattern, codes = hurt(victim, dice, what)
        code = victim.end()
        stderr = victim.said["stderr"]
        assert code in codes, f"{told} after {moment:.2f} s: ended with {code}: {stderr}"
        own_words = "\n".join(line for line in stderr.splitlines() if line.startswith("hvdrun: "))
        if what != "launcher":
            assert own_words and re.search(pattern, own_words), f"{told} after {moment:.2f} s: no cause in: {stderr}"
        # sshd's own half of a connection that was cut is not ours.
        wait_until(lambda: all("sshd" in p.args for p in lab.ps()), f"{told}: left behind: {lab.ps()}")
