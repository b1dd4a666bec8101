"""Processes that were stopped by a signal, and whether they are."""

import pathlib

from lab import wait_until


def state_of(pid):
    """The kernel's letter for it; None when it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def await_states(pids, are_stopped):
    wait_until(lambda: all((state_of(pid) == "T") == are_stopped for pid in pids), f"processes {pids}: {are_stopped}")
