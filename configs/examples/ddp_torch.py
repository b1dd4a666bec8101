"""DistributedDataParallel over libhvd, or over any other backend: hvdrun sets what torch.distributed reads.

    hvdrun -np 2 python ddp_torch.py
    hvdrun -np 2 python ddp_torch.py --backend gloo
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F

import horovod.torch.backend  # noqa: F401  (makes the backend "hvd" known)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="hvd")
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()

    dist.init_process_group(args.backend)
    torch.manual_seed(dist.get_rank())
    net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    model = torch.nn.parallel.DistributedDataParallel(net)  # with rank 0's parameters everywhere
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(args.steps):
        x = torch.randn(64, 8)
        loss = F.mse_loss(model(x), x.square().sum(1, keepdim=True) / 8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mean = loss.detach()
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"loss {mean.item() / dist.get_world_size():.4f} on {dist.get_world_size()} ranks over {args.backend}")
    # Only then: a thread of Gloo that still lets go of a tensor while Python ends aborts the process (torch 2.13).
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
