"""One rank of scripts/bench/collectives gradients: steps with ResNet-50's 161 gradients, the last layer's first; rank 0
prints {"step": median seconds}.

Usage: gradients_rank.py hvd|shared|shared-group|ddp|timeline STEPS
  hvd       one horovod.torch.allreduce_async_ for each, then a synchronize for each
  shared    the same with gradients in a horovod.torch.SharedBuffer
  shared-group  those by one horovod.torch.grouped_allreduce_
  ddp       what torch's DistributedDataParallel does over Gloo: buckets of 25 MiB (the first 1 MiB), filled by copies, reduced
            asynchronously, divided, copied back
  timeline  as hvd, STEPS steps or a few more without a timeline and as many with one, some of each in turn; prints {"off": median,
            "on": median} of a step's seconds
"""

import json
import math
import os
import statistics
import sys
import tempfile
import time

import torch

WARMUP = 3
BLOCK = 6  # steps between two turns of the timeline: few, so that other work of the machine affects both alike
MIB = 1 << 20


def resnet50():
    """Elements of each gradient, in the order of a backward pass (torchvision's resnet50)."""
    counts = []

    def convolution(source, target, kernel):
        counts.extend([target * source * kernel * kernel, target, target])

    convolution(3, 64, 7)
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            convolution(channels, width, 1)
            convolution(width, width, 3)
            convolution(width, 4 * width, 1)
            if block == 0:
                convolution(channels, 4 * width, 1)
            channels = 4 * width
    counts += [1000 * channels, 1000]
    return counts[::-1]


def hvd_step(gradients):
    import horovod.torch as hvd
    handles = [hvd.allreduce_async_(gradient, name=str(i), op=hvd.Average) for i, gradient in enumerate(gradients)]
    for handle in handles:
        hvd.synchronize(handle)


def group_step(gradients):
    import horovod.torch as hvd
    hvd.grouped_allreduce_(gradients, name="all", op=hvd.Average)


def buckets_of(gradients):
    buckets, limit = [[]], MIB
    for gradient in gradients:
        if buckets[-1] and sum(g.numel() for g in buckets[-1]) * 4 + gradient.numel() * 4 > limit:
            buckets.append([])
            limit = 25 * MIB
        buckets[-1].append(gradient)
    return buckets


class DdpStep:
    def __init__(self, gradients):
        self.buckets = [(members, torch.empty(sum(g.numel() for g in members))) for members in buckets_of(gradients)]

    def __call__(self, _):
        import torch.distributed as dist
        works = []
        for members, flat in self.buckets:
            at = 0
            for gradient in members:
                flat[at:at + gradient.numel()].copy_(gradient)
                at += gradient.numel()
            works.append(dist.all_reduce(flat, async_op=True))
        for work, (members, flat) in zip(works, self.buckets, strict=True):
            work.wait()
            flat.div_(dist.get_world_size())
            at = 0
            for gradient in members:
                gradient.copy_(flat[at:at + gradient.numel()])
                at += gradient.numel()


def block_of(gradients, path):
    """Seconds of each of a block's steps; with a timeline where there is a path."""
    import horovod.torch as hvd
    if path:
        hvd.start_timeline(path)
    hvd.barrier()
    hvd_step(gradients)  # otherwise the timeline's writer would be further behind at the end than here
    seconds = []
    for _ in range(BLOCK):
        begin = time.perf_counter()
        hvd_step(gradients)
        seconds.append(time.perf_counter() - begin)
    if path:
        hvd.stop_timeline()
    return seconds


def compare_timeline(gradients, steps):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "timeline.json")
        block_of(gradients, path)
        seconds = {"off": [], "on": []}
        for turn in range(4 * math.ceil(steps / (2 * BLOCK))):
            # The order is off, on, on, off, so that a drift affects both alike.
            is_on = turn % 4 in (1, 2)
            seconds["on" if is_on else "off"] += block_of(gradients, path if is_on else None)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main():
    kind, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    gradients = [torch.zeros(count) for count in resnet50()]
    if kind != "ddp":
        import horovod.torch as hvd
        hvd.init()
        if kind.startswith("shared"):
            gradients = hvd.SharedBuffer(gradients).tensors
        step = group_step if kind == "shared-group" else hvd_step
        rank, barrier, end = hvd.rank(), hvd.barrier, hvd.shutdown
    else:
        import torch.distributed as dist
        dist.init_process_group("gloo")
        rank, step, barrier, end = dist.get_rank(), DdpStep(gradients), dist.barrier, dist.destroy_process_group
    if kind == "timeline":
        compared = compare_timeline(gradients, steps)
        if rank == 0:
            print(json.dumps(compared), flush=True)
        end()
        return
    times = []
    for _ in range(WARMUP + steps):
        barrier()
        begin = time.perf_counter()
        step(gradients)
        times.append(time.perf_counter() - begin)
    if rank == 0:
        print(json.dumps({"step": statistics.median(times[WARMUP:])}), flush=True)
    end()


main()
