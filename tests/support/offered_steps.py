"""Elastic training that tells its sizes: each step counts itself once over all ranks, and each rank prints "size N" when it
begins, and begins again, and "told" with the cause when it is thrown out of a generation.

Argument: it ends at this step. A file's existence may hold it up: it does not end before PATH exists.
"""

import atexit
import os
import sys
import time

import no_framework as hvd

from horovod.common.exceptions import HorovodInternalError

STEPS, GATE = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""


def tells(train):
    def telling(state):
        try:
            train(state)
        except HorovodInternalError as error:
            print(f"told: {error}", flush=True)
            raise

    return telling


def main():
    atexit.register(print, "ends in order", flush=True)
    hvd.init()
    state = hvd.State(step=0, sum=0.0, batches=[])
    longest, last, size = 0.0, time.monotonic(), 0

    @hvd.run
    @tells
    def train(state):
        nonlocal longest, last, size
        size = 0
        while state.step < STEPS or (GATE and not is_open()):
            if hvd.size() != size:
                size = hvd.size()
                print(f"size {size} rank {hvd.rank()} local {hvd.local_rank()} of {hvd.local_size()} step {state.step} "
                      f"pid {os.getpid()}", flush=True)  # fmt: skip
            total = hvd.allreduce(1.0, name="work")
            assert total == hvd.size()
            state.step += 1
            state.batches = [*state.batches, state.step]
            now = time.monotonic()
            longest, last = max(longest, now - last) if state.step > 2 else 0.0, now
            state.commit()
            if state.step == 1:
                print("the first step is committed", flush=True)
            time.sleep(0.02)

    train(state)
    assert state.batches == list(range(1, state.step + 1)), "a step was lost, or came twice"
    print(f"ended at {state.step} as rank {hvd.rank()} of {hvd.size()}, longest pause {longest:.3f} s", flush=True)


def is_open():
    return hvd.allreduce(float(os.path.exists(GATE)), hvd.MIN, name="gate") > 0


main()
