"""Times what torch offers for packing ResNet-50's gradients on a GPU; prints one JSON object: microseconds, medians.

Usage: torch_pack.py SIZES      SIZES: a JSON list of the tensors' sizes, in elements of float32
"""

import json
import statistics
import sys

import torch

REPEATS = 100


def timed(work):
    times = []
    for repeat in range(-REPEATS // 10, REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        if repeat >= 0:
            times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


def main():
    sizes = json.loads(sys.argv[1])
    tensors = [torch.randn(size, device="cuda") for size in sizes]
    flat = torch.empty(sum(sizes), device="cuda")
    parts = list(flat.split(sizes))
    source = torch.randn_like(flat)
    print(json.dumps({
        "torch.cat": timed(lambda: torch.cat(tensors, out=flat)),
        "torch._foreach_copy_": timed(lambda: torch._foreach_copy_(parts, tensors)),
        "torch copy_": timed(lambda: flat.copy_(source)),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
