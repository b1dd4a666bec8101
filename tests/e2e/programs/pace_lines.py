"""Prints COUNT numbered lines of 100 bytes on standard output, RATE bytes a second where they are taken as fast as that."""

import os
import sys
import time

count, rate = int(sys.argv[1]), float(sys.argv[2])
rank = os.environ["HVD_RANK"]
lines = max(1, int(rate / 100 / 20))  # a write each twentieth of a second
begin = time.monotonic()
for first in range(0, count, lines):
    block = b"".join(f"{rank} {i} ".encode().ljust(99, b"x") + b"\n" for i in range(first, min(first + lines, count)))
    at = 0
    while at < len(block):
        at += os.write(1, block[at:])
    # paces the output: its rate is the point
    time.sleep(max(0.0, begin + (first + lines) * 100 / rate - time.monotonic()))
