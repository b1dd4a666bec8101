"""A user's training script, as the README's commands call it: fits a line, and checks that all ranks agree to the bit."""

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                     named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
wanted = torch.tensor([[1.0, -2.0, 3.0, -4.0]])
for step in range(100):
    inputs = torch.randn(32, 4)
    loss = ((model(inputs) - inputs @ wanted.T) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
everyones = hvd.allgather(model.weight.detach())
assert all(torch.equal(row, everyones[0]) for row in everyones), everyones
print(f"rank {hvd.rank()} of {hvd.size()}: loss {hvd.allreduce(loss.detach(), name='loss').item():.4f}", flush=True)
hvd.shutdown()
