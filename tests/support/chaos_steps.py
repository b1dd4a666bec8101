"""Elastic training for the chaos test: each step tells all ranks which samples they took, and one process alone can repeat
all of it at the end. Each rank takes some of its samples in a step, as many as it likes.

Arguments: the file that lets it end, at the end of an epoch.
"""

import collections
import os
import random
import sys
import time

import without_dynamo  # noqa: F401

import torch

import horovod.torch as hvd

GATE, SAMPLES = sys.argv[1], 120


def gradients_of(model, indices, total):
    """This rank's part of the gradients of a step that takes `total` samples."""
    x = torch.tensor([[float(index % SAMPLES)] for index in indices]).reshape(-1, 1) / SAMPLES
    loss = (model(x) - 2 * x).pow(2).sum() / total
    model.zero_grad()
    loss.backward()


def new_model():
    torch.manual_seed(3)
    return torch.nn.Linear(1, 1)


def is_over():
    return hvd.allreduce(torch.tensor([float(os.path.exists(GATE))]), op=hvd.Min, name="gate").item() > 0


def check_epoch(batches):
    """Every sample was taken, and only once, but where it came again to give all ranks equally many: then SAMPLES is added."""
    counts = collections.Counter(index for batch in batches for index in batch)
    left_out = set(range(SAMPLES)) - {index % SAMPLES for index in counts}
    twice = {index: count for index, count in counts.items() if count > 1 and index < SAMPLES}
    assert not left_out and not twice, f"left out: {left_out}, taken twice: {twice}, in {batches}"


def part_of(sampler):
    """This rank's samples. SAMPLES is added to those that another rank has too."""
    ranks, own = hvd.size(), len(sampler.remaining_indices)
    return [index + SAMPLES * (row * ranks + hvd.rank() >= own) for row, index in enumerate(sampler)]


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
            part, dice = part_of(sampler), random.Random()
            while True:
                own = part[: dice.randint(1, 5)]
                del part[: len(own)]
                taken = hvd.allgather(torch.tensor(own, dtype=torch.int64), name="taken").tolist()
                if not taken:
                    break
                gradients_of(model, own, len(taken))
                gradients = [parameter.grad for parameter in model.parameters()]
                for parameter, gradient in zip(model.parameters(), hvd.grouped_allreduce(gradients, op=hvd.Sum, name="gradients")):
                    parameter.grad.copy_(gradient)
                optimizer.step()
                sampler.record_batch(0, len(own))
                state.epochs = [*state.epochs[:-1], [*state.epochs[-1], taken]]
                time.sleep(0.01)
                if len(state.epochs[-1]) % 2 == 0:
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
        gradients_of(alone, batch, len(batch))
        plain.step()
    for here, there in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(here, there, atol=1e-4), f"{here} is not {there}, which one process gets"
    steps = sum(len(epoch) for epoch in state.epochs)
    print(f"ended after {steps} steps, {len(state.epochs) - 1} epochs, as rank {hvd.rank()} of {hvd.size()}", flush=True)


main()
