"""A rank that never ends by itself: barriers with all others, a line after each, and a child that would outlive it."""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "runtime/python"))
from horovod.common import _lib, basics  # noqa: E402

subprocess.Popen(["sleep", "1003"], start_new_session=True)
basics.init()
number = 0
while True:
    handle = _lib.Plan(_lib.BARRIER, _lib.UINT8, (), f"step {number}").enqueue(0, 0)
    if _lib.lib.hvd_wait(None, handle):
        sys.exit(_lib.last_error())
    _lib.release(handle)
    print(f"step {number}", flush=True)
    number += 1
