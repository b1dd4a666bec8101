"""Data loaders whose workers are processes, forked and spawned; runs as a rank (test_multi.py)."""

import sys

import torch
from rank_side import report

import horovod.torch as hvd


def main():
    hvd.init()
    data = torch.utils.data.TensorDataset(torch.arange(24.0))
    seen = {}
    for context in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context=context)
        seen[context] = sum(hvd.allreduce(batch[0].sum(), op=hvd.Sum).item() for batch in loader) / hvd.size()
    hvd.barrier()
    report(seen)
    hvd.shutdown()


if __name__ == "__main__":
    sys.exit(main())
