"""A rank that reduces COUNT floats with all others until that fails: it prints the error and ends. SIGTERM does not end it.

It says "up" after the first time.
"""

import array
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "runtime/python"))
from horovod.common import _lib, basics  # noqa: E402

signal.signal(signal.SIGTERM, signal.SIG_IGN)
basics.init()
count = int(sys.argv[1])
given, sums = (array.array("f", [1.0]) * count for _ in range(2))
plan = _lib.Plan(_lib.ALLREDUCE, _lib.FLOAT32, (count,), "gradient")
step = 0
while not plan.execute(given.buffer_info()[0], sums.buffer_info()[0]):
    assert sums[0] == sums[-1] == basics.size()
    if step == 0:
        print("up", flush=True)
    step += 1
sys.exit(_lib.last_error())
