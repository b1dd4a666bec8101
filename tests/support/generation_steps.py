"""Elastic training that tells in each generation what its process holds, once it has made some steps there.

Argument: it ends when this file exists.
"""

import gc
import json
import os
import sys
import time

import without_dynamo  # noqa: F401

import torch
from holdings import holdings

import horovod.torch as hvd

GATE, STEPS = sys.argv[1], 5


def is_over():
    return hvd.allreduce(torch.tensor([float(os.path.exists(GATE))]), op=hvd.Min, name="gate").item() > 0


def main():
    hvd.init()
    model = torch.nn.Linear(300, 300)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(range(1000))
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, step=0)

    @hvd.elastic.run
    def train(state):
        made = 0
        while not is_over():
            optimizer.zero_grad()
            model(torch.ones(2, 300)).square().mean().backward()
            optimizer.step()
            hvd.allgather_object({"rank": hvd.rank()})
            state.step += 1
            made += 1
            state.commit()
            if made == STEPS:
                gc.collect()
                told = {"pid": os.getpid(), "rank": hvd.rank(), "size": hvd.size(), **holdings()}
                print(json.dumps(told), flush=True)
            time.sleep(0.05)

    train(state)
    hvd.shutdown()


main()
