"""What a process holds of the machine, for tests that look whether it grows."""

import os
import pathlib


def holdings(pid="self"):
    """Its own memory in KiB, and how many descriptors, pieces of shared memory and threads it has."""
    folder = pathlib.Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    maps = (folder / "maps").read_text().splitlines()
    return {
        "memory_kib": int(status["RssAnon"].split()[0]),
        "descriptors": len(os.listdir(folder / "fd")),
        "segments": sum("/dev/shm" in line or "memfd:" in line for line in maps),
        "tasks": len(os.listdir(folder / "task")),
    }
