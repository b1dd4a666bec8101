"""A rank that reduces a float ten times; then rank 1 waits until the file ARG1 exists, and the others wait for it.

Each says "here" before it waits.
"""

import array
import os
import pathlib
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
print("here", flush=True)
while basics.rank() == 1 and not os.access(sys.argv[1], os.F_OK):  # no frame of Python's own, as that of os.path.exists
    time.sleep(0.05)
reduce("layer4.weight")
