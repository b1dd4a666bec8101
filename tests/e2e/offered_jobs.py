"""Elastic jobs on a lab's hosts for the end-to-end tests: their ranks tell each size of the job, and go on until a test ends it."""

import pathlib
import re

from hvdrun import ROOT, read_until, replace_hosts
from patience import PATIENCE

SCRIPT = str(ROOT / "tests/support/offered_steps.py")


class OfferedJob:
    """The base of such jobs, which set `job`, the running hvdrun. `hosts`: a file that says which hosts there are."""

    def __init__(self, lab):
        self.lab = lab
        self.hosts = pathlib.Path(lab.shared) / "offers"
        self.gate = pathlib.Path(lab.shared) / "gate"
        self.gate.unlink(missing_ok=True)

    def set(self, text):
        replace_hosts(self.hosts, text.split())

    def await_size(self, size):
        """Until each rank of that size has said so; returns its lines."""
        return "".join(read_until(self.job.stdout, f"size {size} rank", size))

    def end(self):
        """Lets the job end; returns what hvdrun has told."""
        self.gate.write_text("")
        out, err = self.job.communicate(timeout=PATIENCE)
        assert self.job.returncode == 0, err
        ends = re.findall(r"ended at (\d+) as rank (\d+) of (\d+), longest pause (.*) s", out)
        assert len({step for step, *_ in ends}) == 1, out
        assert sorted(int(rank) for _, rank, *_ in ends) == list(range(int(ends[0][2])))
        print(f"longest pauses: {sorted(float(pause) for *_, pause in ends)} s")
        assert self.lab.wait_for_no_processes() == []
        return err
