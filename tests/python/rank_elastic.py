"""Elastic training in which ranks end on the way; runs as a rank under `hvdrun --elastic-restarts` (test_elastic.py).

Arguments: how ranks end (a key of ENDS), and a folder in which each rank leaves a mark when it has ended so, so that its
restarted self does not.
"""

import os
import pathlib
import signal
import subprocess
import sys

if sys.argv[1] != "parallel":  # DistributedDataParallel wants torch._dynamo
    import without_dynamo  # noqa: F401

import torch
import torch.distributed as dist
from rank_side import report

import horovod.torch as hvd
import horovod.torch.backend  # noqa: F401
from horovod.common import basics

KIND, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
STEPS = 12


def end_once(place, how):
    """Ends this process at a place of the script, the first time that it comes there."""
    mark = FOLDER / f"{os.environ['HVD_RANK']}.{place}"
    if not mark.exists():
        mark.touch()
        how()


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def fail():
    raise RuntimeError("the script's own failure")


ENDS = {  # kind: {(rank as started, step): how}; a step after no commit, which one who is slow may have before it
    "none": {},
    "kill": {(1, 5): kill},
    "at_once": {(0, 5): kill, (1, 5): kill},  # all but the last rank
    "one_after_the_other": {(1, 3): kill, (0, 7): kill, (2, 9): fail},
    "no_commit": {(1, 3): kill},
    "meeting": {(1, 5): kill},
    "parallel": {(1, 5): kill},
}


def parallel(model):
    """The model under DistributedDataParallel, in a group of the job as it is now."""
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("hvd", store=dist.HashStore(), rank=hvd.rank(), world_size=hvd.size())
    return torch.nn.parallel.DistributedDataParallel(model)


def train_all():
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if KIND != "parallel":
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), groups=1)
    state = hvd.elastic.TorchState(model, optimizer, step=0, seen=[])
    begun = []

    @hvd.elastic.run
    def train(state):
        begun.append(state.step)
        trained = parallel(model) if KIND == "parallel" else model
        # A layer with the same names, whose optimizer is made anew each time that ranks have met.
        judge = torch.nn.Linear(3, 1)
        second = hvd.DistributedOptimizer(torch.optim.SGD(judge.parameters(), lr=0.1), judge.named_parameters())
        while state.step < STEPS:
            how = ENDS[KIND].get((int(os.environ["HVD_RANK"]), state.step))
            if how:
                end_once(state.step, how)
            optimizer.zero_grad()
            second.zero_grad()
            x = torch.full((2, 3), 0.1 * state.step + 1)
            (trained(x).square().mean() + judge(x).square().mean()).backward()
            optimizer.step()
            second.step()
            state.seen.append(state.step)
            state.step += 1
            if state.step % 2 == 0 and (KIND != "no_commit" or state.step > 3):
                state.commit()

    train(state)
    return {"begun": begun, "seen": state.seen, "weight": model.weight.flatten().tolist()}


if __name__ == "__main__":
    if KIND == "kill" and os.environ["HVD_RANK"] == "1":
        # Whoever is left of the first one holds the rank's pipes, and must be gone when the second one runs.
        for old in FOLDER.glob("orphan.*"):
            assert not pathlib.Path("/proc", old.suffix[1:]).exists(), f"process {old.suffix[1:]} is still there"
        (FOLDER / f"orphan.{subprocess.Popen(['sleep', '1000']).pid}").touch()
    torch.manual_seed(0)
    if KIND == "meeting" and (FOLDER / "1.5").exists() and os.environ["HVD_RANK"] == "1":
        compare_nodes = basics._compare_nodes
        # Its restarted self ends again in init(), just when all have met.
        basics._compare_nodes = lambda: (end_once("meeting", kill), compare_nodes())
    hvd.init()
    result = train_all()
    result["restarts"] = os.environ["TORCHELASTIC_RESTART_COUNT"]
    report(result)
    hvd.shutdown()
