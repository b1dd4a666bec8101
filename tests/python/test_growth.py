"""A process that joins and leaves jobs again and again, or works on and on, does not grow."""

import pathlib

import pytest
from ranks import run_ranks

SCRIPT = pathlib.Path(__file__).parent / "rank_growth.py"


@pytest.mark.parametrize(
    "kind, count, size, slack_kib",
    [
        # What an allocator may keep for itself between the two looks: less than a leak of a KiB each time would be.
        ("cycles", 1000, 1, 700),
        ("cycles", 1000, 2, 700),
        # The plans of the last thousand names are kept, which are fewer or more at a look.
        ("steps", 10_000, 2, 3000),
    ],
)
def test_nothing_grows(kind, count, size, slack_kib):
    outcome = run_ranks(size, SCRIPT, kind, count, by_agent=True).check()
    for early, late in outcome.reports:
        for what in ("descriptors", "segments", "threads", "tasks"):
            assert late[what] <= early[what], f"{what}: {early[what]} -> {late[what]}"
        grown = late["memory_kib"] - early["memory_kib"]
        assert grown <= slack_kib, f"memory: {early['memory_kib']} KiB, {grown} KiB more later"
