"""Many generations of an elastic job, by ranks that are killed and slots that come and go: nobody who stays grows.

HVD_GROWTH_GENERATIONS, HVD_GROWTH_RANKS: how many (6, 4).
"""

import json
import os
import pathlib
import random
import re
import signal
import sys
import time

from holdings import holdings
from hvdrun import (
    ROOT, env_with, guardian_and_agent, processes_with, read_until, replace_hosts, start, wait_until_gone, without_copies,
)  # fmt: skip
from lab import wait_until
from patience import PATIENCE

GENERATIONS = int(os.environ.get("HVD_GROWTH_GENERATIONS", "6"))
RANKS = int(os.environ.get("HVD_GROWTH_RANKS", "4"))
SCRIPT = ROOT / "tests/support/generation_steps.py"
# What an allocator may keep for itself, and what libraries load when they are first used.
SLACK_KIB = 1024


# malloc gives each large block back, so that the heap does not keep room for more copies of the model than there are.
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}


def at_rest(pid, looks):
    """What it holds when no discovery script runs; in the end, if it never has as few descriptors as in one of `looks`."""
    deadline = time.monotonic() + PATIENCE
    while (look := holdings(pid)) and looks and time.monotonic() < deadline:
        if look["descriptors"] <= min(earlier["descriptors"] for earlier in looks):
            break
        time.sleep(0.05)
    return look


def count_agents(marker):
    return len(without_copies({pid: args for pid, args in processes_with(marker).items() if "hvdrun-agent" in args}))


class Job:
    def __init__(self, folder, marker):
        self.hosts, self.gate = folder / "hosts", folder / "gate"
        self.offer(RANKS)
        self.job = start("-np", RANKS, "--min-np", 1, "--elastic-restarts", 100000, "--host-discovery-script",
                         f"cat {self.hosts}", "--discovery-interval", "0.2", sys.executable, SCRIPT, self.gate,
                         stderr=(folder / "err").open("w"), env=env_with(marker, OMP_NUM_THREADS="1", **GIVES_BACK))  # fmt: skip
        self.agents = ()  # the processes of the first one
        self.looks = {}  # what a process was seen to hold, each time, by what it is

    def offer(self, slots):
        replace_hosts(self.hosts, [f"localhost:{slots}"])

    def meet(self, size, marker, after="the start"):
        """Waits for a generation after some event, and looks at all processes of the job. Returns its ranks.

        After a loss a rank is being started again, which takes descriptors too: looks after different events are not
        compared."""
        ranks = []
        while len(ranks) < size:
            (line,) = read_until(self.job.stdout, "memory_kib")[-1:]
            told = json.loads(line[line.index("{") :])
            if told["size"] == size:
                ranks.append(told)
        for told in ranks:
            # Who decides for the others has more to hold.
            kind = f"process {told['pid']} as {'rank 0' if told['rank'] == 0 else 'another rank'} of {size}"
            self.looks.setdefault(kind, []).append(told)
        if not self.agents:
            self.agents = guardian_and_agent(marker)
        # A slot that has come has an agent of its own, which ends when it goes. hvdrun has a connection to each.
        wait_until(lambda: count_agents(marker) <= 2, "agents of slots that are gone are left")
        agents = count_agents(marker)
        for who, pid in zip(("hvdrun", "the agent's guardian", "the agent"), (self.job.pid, *self.agents)):
            looks = self.looks.setdefault(f"{who} with {size} ranks of {agents} agents after {after}", [])
            looks.append(at_rest(pid, looks))
        assert not list(pathlib.Path("/dev/shm").glob("*hvd*"))
        return ranks

    def end(self):
        self.gate.touch()
        self.job.communicate(timeout=PATIENCE)
        return self.job.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.job.poll() is None:  # the test has failed
            self.job.terminate()
            self.job.communicate(timeout=PATIENCE)


def test_generation_after_generation_nobody_grows(tmp_path, marker):
    dice = random.Random(7)
    with Job(tmp_path, marker) as job:
        ranks, generations = job.meet(RANKS, marker), 1
        stays = next(told["pid"] for told in ranks if told["rank"] == 1)
        while generations < GENERATIONS:
            event = "a loss" if generations % 4 == 1 else "a slot was taken away"
            if event == "a loss":  # the rank is started again
                os.kill(dice.choice([told["pid"] for told in ranks if told["pid"] != stays]), signal.SIGKILL)
            else:
                job.offer(RANKS - 1)
            job.meet(RANKS - 1, marker, event)
            job.offer(RANKS)
            ranks = job.meet(RANKS, marker, f"{event}, and its end")
            generations += 2
        assert job.end() == 0, (tmp_path / "err").read_text()
    assert wait_until_gone(marker) == {}
    numbers = re.findall(r"generation (\d+): ", (tmp_path / "err").read_text())
    assert int(numbers[-1]) >= GENERATIONS
    grown = []
    for kind, looks in job.looks.items():
        early, late = looks[0], looks[-1]
        for what in early.keys() - {"pid", "rank", "size"}:
            if len(looks) > 2:
                print(f"{kind}: {what} {[look[what] for look in looks]}")
            if late[what] > early[what] + (SLACK_KIB if what == "memory_kib" else 0):
                grown.append(f"{kind}: {what} {[look[what] for look in looks]}")
    assert not grown, "\n".join(grown)
