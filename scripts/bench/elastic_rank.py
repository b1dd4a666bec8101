"""A rank of scripts/bench/elastic: trains a model of so many MB. Rank 0 of each generation prints how long the step took in
which ranks were lost or taken in, and "trains" when all have trained for some steps.

Arguments: megabytes, and how many times ranks are to kill themselves, in turn; 0: never, and the job does not end.
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
    # What is made before init() is made while the others train: init() waits until they take this rank in.
    state = hvd.elastic.TorchState(model=torch.nn.Linear(1 << 10, MEGABYTES << 8), losses=0, calm=0, step=0, size=0)
    hvd.init()
    full = int(os.environ["HVD_SIZE"])
    last, done = None, 0

    @hvd.elastic.run
    def train(state):
        nonlocal last, done
        what = None
        if last is not None and hvd.size() != last[1]:
            what = "loss" if hvd.size() < last[1] else "gain"
            state.losses += what == "loss"
        while LOSSES == 0 or state.losses < LOSSES or hvd.size() < full:
            hvd.allreduce(torch.ones(1 << 10), name="work")
            state.step += 1
            now = time.monotonic()
            if what and hvd.rank() == 0:
                print(f"{what} {now - last[0]:.4f}", flush=True)
            # A loss may repeat what came after the last commit. Nothing else repeats a step, and nothing leaves one out.
            assert last is None or state.step == done + 1 or (LOSSES and state.step <= done), (state.step, done)
            state.calm = state.calm + 1 if hvd.size() == state.size and (LOSSES == 0 or hvd.size() == full) else 0
            what, last, done, state.size = None, (now, hvd.size()), state.step, hvd.size()
            if LOSSES == 0 and state.calm == STEPS_BETWEEN and hvd.rank() == 0:
                print(f"trains: {hvd.size()} ranks", flush=True)
            if LOSSES and state.calm == STEPS_BETWEEN and state.losses < LOSSES and hvd.rank() == 1 + state.losses % (full - 1):
                os.kill(os.getpid(), signal.SIGKILL)
            if state.calm % 5 == 0:
                state.commit()
                last = (time.monotonic(), hvd.size())
            else:
                state.check_host_updates()

    train(state)


main()
