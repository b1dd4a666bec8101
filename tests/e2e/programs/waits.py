"""A rank that reduces a float ten times; then rank 1 waits until the file ARG1 exists, and the others wait for it. Each says
"here" before it waits.

With ARG2 "stopped" rank 1 makes the file, for which the others wait first, and stops itself (SIGSTOP).
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
IS_STOPPED = sys.argv[2:] == ["stopped"]


def reduce(name):
    if _lib.Plan(_lib.ALLREDUCE, _lib.FLOAT32, (1,), name).execute(given.buffer_info()[0], sums.buffer_info()[0]):
        sys.exit(_lib.last_error())


for _ in range(10):
    reduce("loss")
print("here", flush=True)
if IS_STOPPED and basics.rank() == 1:
    pathlib.Path(sys.argv[1]).touch()
    os.kill(os.getpid(), signal.SIGSTOP)
# This has no frame of Python's own, as os.path.exists has.
while (IS_STOPPED or basics.rank() == 1) and not os.access(sys.argv[1], os.F_OK):
    time.sleep(0.05)
reduce("layer4.weight")
