"""One of two ranks that send messages to and fro by torch.distributed; rank 0 prints {bytes: seconds one way}.

Usage: messages_rank.py hvd|gloo SECONDS BYTES...      SECONDS: per size, about
"""

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist

ROUNDS = 7


def there_and_back(tensor, calls):
    """Seconds of one message, of `calls` in each direction."""
    other = 1 - dist.get_rank()
    begin = time.perf_counter()
    for _ in range(calls):
        if other:
            dist.send(tensor, other)
            dist.recv(tensor, other)
        else:
            dist.recv(tensor, other)
            dist.send(tensor, other)
    return (time.perf_counter() - begin) / (2 * calls)


def main():
    torch.set_num_threads(1)
    backend, seconds = sys.argv[1], float(sys.argv[2])
    if backend == "hvd":
        import horovod.torch.backend  # noqa: F401  (registers it)
    dist.init_process_group(backend)
    medians = {}
    for size in map(int, sys.argv[3:]):
        tensor = torch.full((size,), dist.get_rank(), dtype=torch.uint8)
        calls = max(1, int(seconds / ROUNDS / (200e-6 + size / 0.5e9) / 2))
        times = [there_and_back(tensor, calls) for _ in range(ROUNDS + 1)][1:]
        assert int(tensor[0]) == int(tensor[-1]) == 0  # rank 0's, on both
        medians[size] = statistics.median(times)
    if dist.get_rank() == 0:
        print(json.dumps(medians), flush=True)
    dist.destroy_process_group()


main()
