"""Training by torch's DDP over gloo that keeps a checkpoint in a file, as scripts for torchrun do.

Arguments: the file; a rank that is killed by SIGKILL after step 5 of the first start.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist

CHECKPOINT, VICTIM, STEPS = sys.argv[1], int(sys.argv[2]), 9


def main():
    dist.init_process_group("gloo")
    rank, restart = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    if os.path.exists(CHECKPOINT):
        kept = torch.load(CHECKPOINT)
        step = kept["step"]
        model.load_state_dict(kept["model"])
    print(f"start {restart} of {os.environ['TORCHELASTIC_MAX_RESTARTS']}: {dist.get_world_size()} ranks go on at step {step}", flush=True)
    while step < STEPS:
        optimizer.zero_grad()
        model(torch.ones(2, 3) * (rank + 1)).sum().backward()
        optimizer.step()
        step += 1
        if rank == 0:
            torch.save({"step": step, "model": model.state_dict()}, CHECKPOINT + ".new")
            os.rename(CHECKPOINT + ".new", CHECKPOINT)
        dist.barrier()
        if restart == "0" and step == 5:
            if rank == VICTIM:
                os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()  # until it is ended for that
    weights = [torch.zeros(1, 3) for _ in range(dist.get_world_size())]
    dist.all_gather(weights, model.module.weight.data)
    assert all(torch.equal(weights[0], other) for other in weights)
    print(f"ended at step {step}, all ranks with the same weights", flush=True)
    dist.destroy_process_group()
    # On a loaded machine torch's own threads abort now and then while the interpreter ends.
    sys.stdout.flush()
    os._exit(0)


main()
