"""Ranks that have different amounts of data: who has none left joins, and waits for the others.

    hvdrun -np 3 python join_torch.py
"""

import torch

import horovod.torch as hvd


def main():
    hvd.init()
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    # While some have joined, they bring zeros, and an average is over all ranks as ever.
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    batches = 5 + 3 * hvd.rank()
    for _ in range(batches):
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    last = hvd.join()

    # The ranks that went on have made steps that the others have not; the last one's model is the result.
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    counts = hvd.allgather(torch.tensor([batches])).tolist()
    if hvd.rank() == 0:
        print(f"batches {counts}; rank {last} was the last to join")


if __name__ == "__main__":
    main()
