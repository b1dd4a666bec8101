"""Times training steps of ResNet-50 on a GPU, batches of 32; runs as a rank (scripts/gpu-check). Reports milliseconds of each
way: no reduction, DistributedOptimizer, the same with compression, and DistributedDataParallel over NCCL, one step of each in
turn; and what a step of DistributedOptimizer asks of the device: waits for it, and gaps.

Argument: steps of each. DDP is left out, with its reason, where its NCCL does not let ranks share a GPU.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from rank_side import report

import horovod.torch as hvd

STEPS = int(sys.argv[1])
BATCH = 32
WARM_UP = 5
# Calls of the CUDA runtime and driver that wait for the device.
WAITS = ("Synchronize", "cudaMemcpy ", "cuMemcpy ")


class Way:
    """A model with its optimizer; `step` is one training step, without a wait for the device."""

    def __init__(self, wrap_model=None, wrap_optimizer=None):
        import torchvision

        torch.manual_seed(0)
        self.model = torchvision.models.resnet50().cuda()
        parameters = list(self.model.named_parameters())
        if wrap_model:
            self.model = wrap_model(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        if wrap_optimizer:
            self.optimizer = wrap_optimizer(self.optimizer, parameters)

    def step(self, images, labels):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def weight(self):
        return float(next(self.model.parameters()).double().sum())


def distributed(compression):
    return lambda optimizer, named: hvd.DistributedOptimizer(optimizer, named_parameters=named, compression=compression)


def ddp_way():
    """The way of DDP, or why there is none."""
    try:
        dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{os.environ.get('MASTER_PORT', '29555')}", rank=hvd.rank(), world_size=hvd.size())
        dist.all_reduce(torch.ones(1, device="cuda"))
        torch.cuda.synchronize()
        parallel = torch.nn.parallel.DistributedDataParallel
        return Way(lambda model: parallel(model, device_ids=[0], gradient_as_bucket_view=True)), ""
    except Exception as error:
        return None, str(error).strip().splitlines()[-1][:200]


def traced(step):
    """What three steps ask of the device: how often they wait for it, and the longest gap between its kernels."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    if folder := os.environ.get("HVD_TRACE_TO"):
        trace.export_chrome_trace(f"{folder}/steps-{hvd.rank()}.json.gz")
    events = trace.events()
    waits = {}
    for event in events:
        if any(word in event.name + " " for word in WAITS):
            waits[event.name] = waits.get(event.name, 0) + 1
    on_device = sorted((event.time_range.start, event.time_range.end, event.name) for event in events
                       if str(event.device_type).endswith("CUDA"))  # fmt: skip
    until, gaps = None, []
    for begin, end, name in on_device:
        if until is not None and begin > until:
            gaps.append((round(begin - until, 1), name[:60]))
        until = end if until is None else max(until, end)
    ours = [name[:60] for _, _, name in on_device if "hvd" in name or "move" in name or "nccl" in name.lower()]
    return {"waits": waits, "gaps_us": sorted(gaps, reverse=True)[:5], "ours": sorted(set(ours)), "ours_count": len(ours),
            "kernels": len(on_device)}  # fmt: skip


def main():
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    torch.backends.cudnn.benchmark = True
    images = torch.randn(BATCH, 3, 224, 224, device="cuda", generator=torch.Generator("cuda").manual_seed(hvd.rank()))
    labels = torch.arange(BATCH, device="cuda") * 31 % 1000
    ways = {"no reduction": Way(), "hvd": Way(None, distributed(hvd.Compression.none)),
            "hvd fp16": Way(None, distributed(hvd.Compression.fp16)), "hvd bf16": Way(None, distributed(hvd.Compression.bf16))}  # fmt: skip
    ways["DDP"], why_not = ddp_way()
    if not ways["DDP"]:
        del ways["DDP"]
    times = {name: [] for name in ways}
    for number in range(-WARM_UP, STEPS):
        for name, way in ways.items():
            hvd.barrier()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            way.step(images, labels)
            torch.cuda.synchronize()
            if number >= 0:
                times[name].append((time.perf_counter() - begin) * 1e3)
    medians = {name: statistics.median(found) for name, found in times.items()}
    told = {"ms": medians, "no DDP": why_not, "weights": {name: way.weight() for name, way in ways.items()}}
    hvd.barrier()
    told["trace"] = traced(lambda: ways["hvd"].step(images, labels))
    hvd.barrier()
    report(told)


main()
