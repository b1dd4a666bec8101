"""A rank of scripts/bench/elastic: trains a model of so many MB, and ranks kill themselves in turn. Rank 0 of each generation
prints how long the step took in which ranks were lost or taken in.

Arguments: megabytes, and how many losses.
"""

import os
import signal
import sys
import time

import torch

import horovod.torch as hvd

MEGABYTES, LOSSES = int(sys.argv[1]), int(sys.argv[2])
STEPS_BETWEEN = 20


def main():
    hvd.init()
    full = int(os.environ["HVD_SIZE"])
    state = hvd.elastic.TorchState(model=torch.nn.Linear(1 << 10, MEGABYTES << 8), losses=0, calm=0)
    last = None

    @hvd.elastic.run
    def train(state):
        nonlocal last
        if last is not None and hvd.size() != last[1]:
            what = "loss" if hvd.size() < last[1] else "gain"
            state.losses += what == "loss"
        else:
            what = None
        while state.losses < LOSSES or hvd.size() < full:
            hvd.allreduce(torch.ones(1 << 10), name="work")
            now = time.monotonic()
            if what and hvd.rank() == 0:
                print(f"{what} {now - last[0]:.4f}", flush=True)
            what, last = None, (now, hvd.size())
            state.calm = state.calm + 1 if hvd.size() == full else 0
            if state.calm == STEPS_BETWEEN and state.losses < LOSSES and hvd.rank() == 1 + state.losses % (full - 1):
                os.kill(os.getpid(), signal.SIGKILL)
            if state.calm % 5 == 0:
                state.commit()
                last = (time.monotonic(), hvd.size())
            else:
                state.check_host_updates()

    train(state)


main()
