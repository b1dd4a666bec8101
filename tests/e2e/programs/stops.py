"""A rank that reduces a float ten times; then rank 1 stops itself (SIGSTOP), and the others wait for it.

The file ARG1 is there when rank 1 stops.
"""

import array
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "runtime/python"))
from horovod.common import _lib, basics  # noqa: E402

basics.init()
given, sums = (array.array("f", [1.0]) for _ in range(2))


def reduce(name):
    if _lib.Plan(_lib.ALLREDUCE, _lib.FLOAT32, (1,), name).execute(given.buffer_info()[0], sums.buffer_info()[0]):
        sys.exit(_lib.last_error())


for _ in range(10):
    reduce("loss")
if basics.rank() == 1:
    pathlib.Path(sys.argv[1]).touch()
    os.kill(os.getpid(), signal.SIGSTOP)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
reduce("layer4.weight")
