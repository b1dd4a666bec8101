"""One rank of `scripts/bench/run deaths`: the last rank kills itself while the others wait for it in an allreduce; each of
them prints how many seconds after that moment its error came, and what it says.

Usage: death_rank.py FOLDER        a folder that all ranks share
"""

import os
import pathlib
import signal
import sys
import time

import numpy as np
from horovod.common import _lib, basics

SETTLE_S = 0.5  # by then the others sleep in their wait, the state in which they learn of a death most slowly


def main():
    moment = pathlib.Path(sys.argv[1]) / "moment"
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # hvdrun stops the others; they first report what they saw
    basics.init()
    rank, size = basics.rank(), basics.size()
    array = np.ones(1 << 20, np.float32)

    def allreduce(name):
        address = array.ctypes.data
        return _lib.lib.hvd_wait(None, _lib.Plan(_lib.ALLREDUCE, _lib.FLOAT32, array.shape, name).enqueue(address, address))

    if allreduce("before"):
        sys.exit(_lib.last_error())
    if rank == size - 1:
        time.sleep(SETTLE_S)
        moment.write_text(repr(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    if allreduce("never"):
        seconds = time.monotonic() - float(moment.read_text())
        print(f"error after {seconds:.4f} s: {_lib.last_error()}", flush=True)


main()
