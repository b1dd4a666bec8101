"""A rank that reduces 4 bytes with the others for ARG1 seconds, as fast as it can; rank 0 prints the time after each TURNS + 1."""

import array
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "runtime/python"))
from horovod.common import _lib, basics  # noqa: E402

TURNS = 256  # between two looks at the clock, which all ranks take at the same time

basics.init()
given, sums = (array.array("f", [1.0]) for _ in range(2))
plan = _lib.Plan(_lib.ALLREDUCE, _lib.FLOAT32, (1,), "gradient")
source, target = given.buffer_info()[0], sums.buffer_info()[0]
began = time.monotonic()
goes_on = True
while goes_on:
    for _ in range(TURNS):
        if plan.execute(source, target):
            sys.exit(_lib.last_error())
    if basics.rank() == 0:
        now = time.monotonic()
        print(f"{now:.6f}")
        given[0] = -1.0 if now - began > float(sys.argv[1]) else 1.0
    # The sum is less than the number of ranks once rank 0 has had enough.
    plan.execute(source, target)
    goes_on = sums[0] > basics.size() - 1.5
