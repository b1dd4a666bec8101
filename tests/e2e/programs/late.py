"""A rank of two that meet at a barrier; rank 1 comes when the file is there that is its argument, and never without one."""

import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "runtime/python"))
from horovod.common import _lib, basics  # noqa: E402

basics.init()
if basics.rank() == 1:
    while not (len(sys.argv) > 1 and os.path.exists(sys.argv[1])):
        time.sleep(0.01)
handle = _lib.Plan(_lib.BARRIER, _lib.UINT8, (), "meeting").enqueue(0, 0)
if _lib.lib.hvd_wait(None, handle):
    sys.exit(_lib.last_error())
_lib.release(handle)
