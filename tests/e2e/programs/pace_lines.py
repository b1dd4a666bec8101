"""Prints COUNT numbered lines of 100 bytes on standard output, RATE bytes a second where they are taken as fast as that.

Where COUNT is "on", it goes on until SIGUSR1, and then says how many there were.
"""

import itertools
import os
import signal
import sys
import time

is_told = []
signal.signal(signal.SIGUSR1, lambda *_: is_told.append(True))
goes_on, rate = sys.argv[1] == "on", float(sys.argv[2])
count = sys.maxsize if goes_on else int(sys.argv[1])
rank = os.environ["HVD_RANK"]
lines = max(1, int(rate / 100 / 20))  # a write each twentieth of a second
begin = time.monotonic()
for first in itertools.count(0, lines):
    if first >= count or is_told:
        break
    block = b"".join(f"{rank} {i} ".encode().ljust(99, b"x") + b"\n" for i in range(first, min(first + lines, count)))
    at = 0
    while at < len(block):
        at += os.write(1, block[at:])
    # paces the output: its rate is the point
    time.sleep(max(0.0, begin + (first + lines) * 100 / rate - time.monotonic()))
if goes_on:
    os.write(1, f"{rank} end {first}\n".encode())
