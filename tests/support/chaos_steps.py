"""Elastic training for the chaos test: each step tells all ranks which samples they took, and one process alone can repeat
all of it at the end.

Arguments: the file that lets it end, at the end of an epoch.
"""

import collections
import os
import sys
import time

import torch

import horovod.torch as hvd

GATE, SAMPLES = sys.argv[1], 60


def step_of(model, indices):
    """One step of gradient descent on these samples."""
    x = torch.tensor([[float(index)] for index in indices]) / SAMPLES
    loss = (model(x) - 2 * x).pow(2).mean()
    model.zero_grad()
    loss.backward()
    return loss.item()


def new_model():
    torch.manual_seed(3)
    return torch.nn.Linear(1, 1)


def is_over():
    return hvd.allreduce(torch.tensor([float(os.path.exists(GATE))]), op=hvd.Min, name="gate").item() > 0


def check_epoch(batches):
    """Every sample was taken; only the last batches of an epoch may hold one again, to give all ranks equally many."""
    counts = collections.Counter(index for batch in batches for index in batch)
    assert set(counts) == set(range(SAMPLES)), f"left out: {set(range(SAMPLES)) - set(counts)}"
    again = sum(counts.values()) - SAMPLES
    assert again < len(batches[-1]), f"{again} samples came again in {batches}"


def main():
    hvd.init()
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = hvd.elastic.ElasticSampler(range(SAMPLES), shuffle=True)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epochs=[[]], ended=False)

    @hvd.elastic.run
    def train(state):
        print(f"size {hvd.size()} rank {hvd.rank()} epoch {len(state.epochs)}", flush=True)
        while not state.ended:
            for index in sampler:
                taken = hvd.allgather(torch.tensor([index]), name="taken").tolist()
                step_of(model, [index])
                gradients = hvd.grouped_allreduce([p.grad for p in model.parameters()], name="gradients")
                for parameter, gradient in zip(model.parameters(), gradients):
                    parameter.grad.copy_(gradient)
                optimizer.step()
                sampler.record_batch(0, 1)
                state.epochs = [*state.epochs[:-1], [*state.epochs[-1], taken]]
                time.sleep(0.005)
                state.commit()
            check_epoch(state.epochs[-1])
            state.ended = is_over()
            sampler.set_epoch(sampler.epoch + 1)
            state.epochs = [*state.epochs, []]
            state.commit()

    train(state)
    alone = new_model()
    plain = torch.optim.SGD(alone.parameters(), lr=0.1)
    for batch in (batch for epoch in state.epochs for batch in epoch):
        step_of(alone, batch)
        plain.step()
    for here, there in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(here, there, atol=1e-4), f"{here} is not {there}, which one process gets"
    steps = sum(len(epoch) for epoch in state.epochs)
    print(f"ended after {steps} steps, {len(state.epochs) - 1} epochs, as rank {hvd.rank()} of {hvd.size()}", flush=True)


main()
