"""Elastic training without end but by its argument: commits each step, and prints its size and the longest pause between two.

Argument: it ends some steps after its job has had so many ranks, having had another number before.
"""

import sys
import time

import no_framework as hvd

WANTED, MORE = int(sys.argv[1]), 20


def main():
    hvd.init()
    first = hvd.size()
    state = hvd.State(step=0, since=0)
    longest, last = 0.0, time.monotonic()

    @hvd.run
    def train(state):
        nonlocal longest, last
        while state.since < MORE:
            hvd.allreduce(1.0, name="work")
            state.step += 1
            if hvd.size() == WANTED != first or state.since:
                state.since += 1
            now = time.monotonic()
            longest, last = max(longest, now - last) if state.step > 2 else 0.0, now
            if state.step == 3:
                print("trains", flush=True)
            state.commit()
            time.sleep(0.02)

    train(state)
    print(f"rank {hvd.rank()} of {hvd.size()}, longest pause {longest:.3f} s", flush=True)


main()
