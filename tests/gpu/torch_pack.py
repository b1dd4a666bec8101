"""Times what torch offers for packing ResNet-50's gradients on a GPU, as pack_bench.cpp times ours: in turns, on a warm
device, and behind work that hides the host's time. Prints one JSON object, as it does: {"times", "late"}.

Usage: torch_pack.py SIZES      SIZES: a JSON list of the tensors' sizes, in elements of float32
"""

import json
import statistics
import sys
import time

import torch

REPEATS = 100
LEAD_CYCLES = 4_000_000  # of the device's clock: 2 ms, longer than Python takes to enqueue 161 tensors


class Timer:
    def __init__(self, elements):
        self.source, self.target = torch.zeros(elements, device="cuda"), torch.zeros(elements, device="cuda")

    def lead(self):
        """Keeps the stream busy; and the cache is full of what no work moves."""
        if hasattr(torch.cuda, "_sleep"):
            torch.cuda._sleep(LEAD_CYCLES)
        for _ in range(1 if hasattr(torch.cuda, "_sleep") else 40):
            self.target.copy_(self.source)

    def warm_up(self):
        """An idle device's clocks are low, and take their time to rise."""
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            for _ in range(20):
                self.target.copy_(self.source)
            torch.cuda.synchronize()

    def once(self, work):
        """Microseconds; and whether the stream was idle again before the host had enqueued all."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.lead()
        begin.record()
        work()
        end.record()
        is_late = begin.query()
        end.synchronize()
        return begin.elapsed_time(end) * 1000, is_late


def measure(works, timer):
    times, late = {name: [] for name in works}, dict.fromkeys(works, 0)
    timer.warm_up()
    for repeat in range(-REPEATS // 10, REPEATS):
        for name, work in works.items():
            microseconds, is_late = timer.once(work)
            if repeat >= 0:
                times[name].append(microseconds)
                late[name] += is_late
    return {"times": {name: statistics.quantiles(found, n=4) for name, found in times.items()}, "late": late}


def main():
    sizes = json.loads(sys.argv[1])
    tensors = [torch.randn(size, device="cuda") for size in sizes]
    flat = torch.empty(sum(sizes), device="cuda")
    parts = list(flat.split(sizes))
    source = torch.randn_like(flat)
    works = {
        "copy_": lambda: flat.copy_(source),
        "torch.cat": lambda: torch.cat(tensors, out=flat),
        "_foreach_copy_": lambda: torch._foreach_copy_(parts, tensors),
        "161 copy_": lambda: [part.copy_(tensor) for part, tensor in zip(parts, tensors)],
    }
    print(json.dumps(measure(works, Timer(flat.numel()))))


if __name__ == "__main__":
    main()
