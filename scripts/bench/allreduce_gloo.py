"""One rank of scripts/bench/run for torch's Gloo: what allreduce_rank.c does, with the same numbers of calls.

Usage: allreduce_gloo.py SECONDS BYTES...
"""

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist


def median_seconds(tensor, batches, calls):
    times = []
    for _ in range(batches + 2):
        begin = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(tensor)
        times.append((time.perf_counter() - begin) / calls)
    return statistics.median(times[2:])


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    seconds, medians = float(sys.argv[1]), {}
    for size in map(int, sys.argv[2:]):
        guess = 100e-6 + size / 1e9
        calls = max(1, int(1e-3 / guess))
        batches = min(400, int(seconds / (guess * calls)) + 5)
        medians[size] = median_seconds(torch.zeros(size // 4), batches, calls)
    if dist.get_rank() == 0:
        print(json.dumps(medians), flush=True)
    dist.destroy_process_group()


main()
