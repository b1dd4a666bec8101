"""A rank of torch's env://: sums ones over all of them by Gloo."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {ones.item()}", flush=True)
dist.barrier()
os._exit(0)  # on a loaded machine gloo's threads abort now and then while the interpreter ends
