"""Prints COUNT numbered lines on each stream, in writes of random length, so that lines are cut anywhere."""

import os
import random
import sys

count = int(sys.argv[1])
rank = os.environ["HVD_RANK"]
rng = random.Random(int(rank))
for fd, name in ((1, "out"), (2, "err")):
    text = "".join(f"{name} {rank} {i} {'x' * (i % 90)} end\n" for i in range(count)).encode()
    at = 0
    while at < len(text):
        size = rng.choice((1, 7, 100, 4096, 65536)) if count > 100 else rng.choice((1, 5, 50))
        at += os.write(fd, text[at:at + size])
