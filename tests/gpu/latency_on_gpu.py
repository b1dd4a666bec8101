"""Times small allreduces on a GPU; runs as a rank (scripts/gpu-check). Reports microseconds of each, by size.

Argument: "gpu", or "fake": the fakes of CUDA and NCCL stand for one.
"""

import sys
import time

import torch
from cuda_stand_in import joined
from rank_side import report

import horovod.torch as hvd

WAY = sys.argv[1]
REPEATS = 200 if WAY == "gpu" else 2


def main():
    cuda = joined(WAY)
    found = {}
    for name, count in (("4 bytes", 1), ("1 MiB", 1 << 18)):
        tensor = cuda(torch.ones(count))
        times = []
        for repeat in range(-10, REPEATS):
            begin = time.perf_counter()
            hvd.allreduce_(tensor, name=name, op=hvd.Sum)
            if WAY == "gpu":
                torch.cuda.synchronize()
            if repeat >= 0:
                times.append((time.perf_counter() - begin) * 1e6)
        found[name] = times
    report(found)


main()
