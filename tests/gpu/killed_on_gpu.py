"""Rank 1 is killed in the middle of allreduces on a GPU; runs as a rank (scripts/gpu-check).

Argument: "gpu", or "fake": the fakes of CUDA and NCCL stand for one. The others report what they were told, and how many
seconds after the kill.
"""

import os
import pathlib
import signal
import sys
import threading
import time

import torch
from cuda_stand_in import joined
from rank_side import report

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError

MOMENT = pathlib.Path(os.environ["HVD_TEST_REPORTS"]) / "killed"


def kill():
    MOMENT.write_text(str(time.monotonic()))  # the same clock in all processes
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    cuda = joined(sys.argv[1])
    tensor = cuda(torch.ones(1 << 20))
    try:
        hvd.allreduce_(tensor, name="first")  # what is made at the first is there
        if hvd.rank() == 1:
            threading.Timer(0.2, kill).start()
        while True:
            hvd.allreduce_(tensor, name="loop")
    except HorovodInternalError as error:
        report({"error": str(error), "seconds": time.monotonic() - float(MOMENT.read_text())})


main()
