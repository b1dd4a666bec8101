"""Process sets of an elastic job that goes on without its rank 1; runs as a rank under `hvdrun --min-np`
(test_elastic_sets.py).

Arguments: not used, and a folder for marks.
"""

import os
import pathlib
import signal
import sys
import threading

import torch
from rank_side import report

import horovod.torch as hvd

FOLDER = pathlib.Path(sys.argv[2])
ME = int(os.environ["HVD_RANK"])


def sum_in(process_set):
    return hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=process_set).item() if process_set.included() else 0


def main():
    if (FOLDER / "killed").exists():
        threading.Event().wait()  # started again, and the others are to be done before it comes back
    outer, alone = hvd.ProcessSet([0, 1]), hvd.ProcessSet([1])
    hvd.init(process_sets=[outer, alone])
    state = hvd.elastic.TorchState(step=0, ended=False)
    own = None
    seen = []

    @hvd.elastic.run
    def train(state):
        nonlocal own
        if own is None and not (FOLDER / "killed").exists():
            own = hvd.add_process_set([0, 2])
        while True:
            if ME == 1 and state.step == 3 and not (FOLDER / "killed").exists():
                (FOLDER / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.allreduce(torch.ones(1), name="work")
            if state.step > 3 and hvd.size() == 2:
                break
            state.step += 1
            state.commit()
        for process_set in (outer, alone, own):
            try:
                seen.append([process_set.ranks, sum_in(process_set)])
                hvd.broadcast(torch.ones(1), 0, process_set=process_set) if process_set is alone else None
            except ValueError as error:
                seen.append(str(error))
        again = hvd.add_process_set([0, 1])  # the same as `own` is now
        seen.append(sum_in(again))

    train(state)
    report(seen)
    hvd.shutdown()


main()
