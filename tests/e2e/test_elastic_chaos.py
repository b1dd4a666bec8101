"""Hosts and ranks of an elastic job come, go, are killed, cut off and stopped at random: it never hangs, leaves nothing, takes
every sample once an epoch, and trains as one process would.

HVD_CHAOS_RUNS: how many events (6). HVD_CHAOS_SEED: those of an earlier run; a failure tells it.
"""

import os
import pathlib
import random
import re
import signal
import sys
import threading
import time

from hvdrun import HVDRUN, ROOT, replace_hosts
from patience import PATIENCE

RUNS = int(os.environ.get("HVD_CHAOS_RUNS", "6"))
SEED = os.environ.get("HVD_CHAOS_SEED") or str(time.time_ns())
HOSTS = ("node1", "node2", "node3", "node4")
AGENT = r"(hvdrun-agent|/agent-[0-9a-f]+)\b.* serve$"


class Chaos:
    def __init__(self, lab):
        self.lab = lab
        self.dice = random.Random(SEED)
        self.gate = pathlib.Path(lab.shared) / "gate"
        self.hosts = pathlib.Path(lab.shared) / "hosts"
        self.file = pathlib.Path(lab.shared) / "join"
        self.joiners = []
        self.offer(HOSTS)
        self.lines = []
        self.news = threading.Condition()
        self.job = lab.popen(
            HVDRUN, "-np", "4", "--min-np", "1", "--host-discovery-script", f"cat {self.hosts}",
            "--discovery-interval", "0.1", "--blacklist-cooldown-range", "0.5", "1", "--heartbeat", "1",
            "--reconnect-timeout", "2", "--elastic-restarts", "100000", "--grace", "2",
            "--join-file", str(self.file), sys.executable, str(ROOT / "tests/support/chaos_steps.py"), str(self.gate))  # fmt: skip
        streams = (self.job.stdout, self.job.stderr)
        self.readers = [threading.Thread(target=self.read, args=(stream,), daemon=True) for stream in streams]
        for reader in self.readers:
            reader.start()

    def read(self, stream):
        for line in stream:
            with self.news:
                self.lines.append(line.rstrip("\n"))
                self.news.notify_all()

    def said(self):
        return "\n".join(self.lines[-60:]) + f"\nHVD_CHAOS_SEED={SEED}"

    def wait(self, condition, what):
        with self.news:
            met = self.news.wait_for(lambda: condition() or self.job.poll() is not None, PATIENCE)
        assert met and condition(), f"{what}\n{self.said()}"

    def generations(self):
        return [line for line in self.lines if re.search(r"generation \d+: ", line)]

    def size(self):
        sizes = re.findall(r": (\d+) ranks? trains?", (self.generations() or ["1: 4 ranks train"])[-1])
        return int(sizes[0])

    def offer(self, hosts):
        replace_hosts(self.hosts, [f"{host}:1" for host in hosts])

    def all_train(self):
        self.offer(HOSTS)
        self.wait(lambda: self.size() >= 4, "not all hosts are in the job again")

    def some(self, pattern):
        found = [p for p in self.lab.ps(*HOSTS) if re.search(pattern, p.args) and "sshd" not in p.args]
        return self.dice.choice(found) if found else None

    def signal(self, process, signo):
        try:
            os.kill(process.pid, signo)
        except (AttributeError, ProcessLookupError):
            pass

    # ---- events ----
    def kill_rank(self):
        self.signal(self.some(r"chaos_steps\.py"), signal.SIGKILL)

    def kill_agent(self):
        self.signal(self.some(AGENT), signal.SIGKILL)

    def end_agent(self):
        self.signal(self.some(AGENT), signal.SIGTERM)

    def join(self):
        """A machine calls the job, and leaves at some time, or with the job."""
        if len(self.joiners) == 3:
            joiner = self.joiners.pop(0)
            joiner.send_signal(self.dice.choice((signal.SIGTERM, signal.SIGKILL)))
            joiner.communicate(timeout=PATIENCE)
        self.joiners.append(self.lab.popen(HVDRUN, "join", str(self.file), host=self.dice.choice(HOSTS)))

    def stop_agent(self):
        agent = self.some(AGENT)
        self.signal(agent, signal.SIGSTOP)
        time.sleep(self.dice.uniform(0.2, 4))
        self.signal(agent, signal.SIGCONT)

    def cut(self):
        self.lab.cut(self.dice.choice(HOSTS))
        time.sleep(self.dice.uniform(0.2, 5))
        self.lab.heal()

    def offer_some(self):
        self.offer(self.dice.sample(HOSTS, self.dice.randint(1, 4)))

    def flap(self):
        for _ in range(10):
            self.offer_some()
            time.sleep(0.1)

    def break_script(self):
        self.hosts.write_text("what is this\n")


def test_what_comes_and_goes_at_random_loses_no_sample_and_hangs_nobody(lab4):
    chaos = Chaos(lab4)
    chaos.wait(lambda: sum("size 4 rank" in line for line in chaos.lines) == 4, "the job did not begin")
    events = (chaos.kill_rank, chaos.kill_agent, chaos.end_agent, chaos.join, chaos.stop_agent, chaos.cut, chaos.offer_some, chaos.flap,
              chaos.break_script)  # fmt: skip
    began = time.monotonic()
    for number in range(RUNS):
        event = chaos.dice.choice(events)
        if event not in (chaos.offer_some, chaos.flap):
            chaos.all_train()  # a job with one host alone has nobody to go on with when it loses that
        chaos.lines.append(f"---- {time.monotonic() - began:.1f} s: {event.__name__}")
        event()
        time.sleep(chaos.dice.uniform(0, 2))
        assert chaos.job.poll() is None, f"it ended after {number + 1} events\n{chaos.said()}"
    chaos.lab.heal()
    chaos.gate.write_text("")
    chaos.job.wait(PATIENCE)
    for joiner in chaos.joiners:
        joiner.communicate(timeout=PATIENCE)
    for reader in chaos.readers:
        reader.join(PATIENCE)
    assert chaos.job.returncode == 0, chaos.said()
    assert any(re.search(r"ended after \d+ steps", line) for line in chaos.lines), chaos.said()
    assert lab4.wait_for_no_processes() == [], chaos.said()
    print(f"{RUNS} events, {len(chaos.generations())} generations, {time.monotonic() - began:.0f} s; "
          f"{[line for line in chaos.lines if 'ended after' in line][-1]}")  # fmt: skip
