"""Rank 1 makes a mistake on its GPU; runs as a rank (scripts/gpu-check). Argument: "access" (a kernel reads where nothing is) or
"memory" (none is left for what an allgather brings). Each rank reports the error that it got and how long after the mistake."""

import os
import pathlib
import sys
import time

import torch
from rank_side import report

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError

MOMENT = pathlib.Path(os.environ["HVD_TEST_REPORTS"]) / "mistake"
LEFT_BYTES = 64 << 20


def make_mistake(what):
    if what == "access":
        torch.ones(4, device="cuda")[torch.tensor([1 << 20], device="cuda")].sum()  # fails later, on the device
        return None
    free = torch.cuda.mem_get_info()[0]
    return [torch.empty(max(free - LEFT_BYTES, 0), dtype=torch.uint8, device="cuda")]


def main():
    what = sys.argv[1]
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    tensor = torch.ones(1 << 18, device="cuda")
    hvd.allreduce_(tensor, name="first")
    torch.cuda.synchronize()
    hvd.barrier()
    try:
        if hvd.rank() == 1:
            MOMENT.write_text(str(time.monotonic()))
            kept = make_mistake(what)  # noqa: F841
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if what == "access":
                hvd.allreduce_(tensor, name="loop")
            else:
                hvd.allgather(torch.ones(64 << 20, device="cuda"), name="loop")
        error = None
    except (HorovodInternalError, RuntimeError) as caught:
        error = caught
    text = "no error" if error is None else f"{type(error).__name__}: {error}"
    report({"error": text[:600], "seconds": time.monotonic() - float(MOMENT.read_text())})
    os._exit(0)


main()
