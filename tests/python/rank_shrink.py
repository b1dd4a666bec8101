"""Elastic training that goes on with fewer ranks; runs as a rank under `hvdrun --min-np` (test_elastic.py).

Arguments: how it goes (a key of the table below), and a folder in which the ranks leave marks for each other.
"""

import os
import pathlib
import signal
import sys
import threading
import time

import without_dynamo  # noqa: F401

import torch
from rank_side import report

import horovod.torch as hvd

KIND, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
ME = int(os.environ["HVD_RANK"])
STEPS = 12
KILLED_AT = 5
LOST = {"loss": {1}, "rank_0": {0}, "two": {0, 2}, "return": {1}}[KIND]


def train_all():
    model = torch.nn.Linear(3, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), named_parameters=model.named_parameters(), groups=1
    )
    state = hvd.elastic.TorchState(model, optimizer, step=0, seen=[], sizes=[])
    begun, pauses, last = [], [], time.monotonic()

    @hvd.elastic.run
    def train(state):
        nonlocal last
        begun.append(state.step)
        while state.step < STEPS:
            # It stays at one step, and commits, until the one that was lost has come back, which that one does not do earlier.
            is_waiting = KIND == "return" and state.step == KILLED_AT + 1 and hvd.size() < 3
            if is_waiting:
                (FOLDER / "without").touch()
            if state.step == KILLED_AT and hvd.size() == 3:
                hvd.barrier()  # all have made the commit, to which those that stay go back
            if state.step == KILLED_AT and ME in LOST and not (FOLDER / f"{ME}.killed").exists():
                (FOLDER / f"{ME}.killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if not is_waiting:
                optimizer.zero_grad()
                model(torch.full((2, 3), 0.1 * state.step + 1)).square().mean().backward()
                optimizer.step()
                state.seen.append(state.step)
                state.sizes.append(hvd.size())
                state.step += 1
            pauses.append(time.monotonic() - last)
            last = time.monotonic()
            state.commit()

    train(state)
    return {"begun": begun, "seen": state.seen, "sizes": state.sizes, "weight": model.weight.flatten().tolist(),
            "pause": max(pauses[2:]), "ranks": [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()]}  # fmt: skip


if __name__ == "__main__":
    if KIND != "return" and (FOLDER / f"{ME}.killed").exists():
        threading.Event().wait()  # started again, and the others are to be done before it comes back
    while (FOLDER / f"{ME}.killed").exists() and not (FOLDER / "without").exists():
        time.sleep(0.05)
    torch.manual_seed(0)
    hvd.init()
    report(train_all())
    hvd.shutdown()
