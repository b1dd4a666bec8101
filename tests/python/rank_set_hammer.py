"""Makes, uses and removes random overlapping process sets, and checks their sums; runs as a rank, of scripts/hammer for as
long as one likes, and of test_multi.py.

Usage: rank_set_hammer.py SEED SECONDS ROUNDS      It ends with whichever limit comes first. All ranks draw the same sets, and
each its own order of operations on them.
"""

import random
import sys
import time

import torch
from rank_side import report

import horovod.torch as hvd

MOST_SETS = 5
ROUNDS_PER_LOOK = 20  # at the clock, which all ranks must agree on

seed, seconds, most_rounds = (int(word) for word in sys.argv[1:])
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
common, own = random.Random(seed), random.Random(f"{seed}/{RANK}")
sets = {tuple(range(SIZE)): hvd.global_process_set}


def change_sets():
    """Makes one, removes one, or none of both."""
    others = [ranks for ranks in sets if len(ranks) < SIZE]
    if others and common.random() < (len(others) + 0.5) / (MOST_SETS + 1):
        assert hvd.remove_process_set(sets.pop(common.choice(others)))
    ranks = tuple(sorted(common.sample(range(SIZE), common.randint(1, SIZE - 1))))
    if len(others) < MOST_SETS and ranks not in sets:
        sets[ranks] = hvd.add_process_set(list(ranks))


def use_sets(number):
    """Sums on every set that this rank is in, under way at once with those on the others."""
    mine = [ranks for ranks in sets if RANK in ranks]
    own.shuffle(mine)
    size = common.choice([1, 100, 70_000])
    handles = [
        hvd.allreduce_async(torch.full((size,), float(RANK + number)), name=f"sum-{number % 7}", op=hvd.Sum, process_set=sets[ranks])
        for ranks in mine
    ]
    return [(ranks, handle) for ranks, handle in zip(mine, handles)]


def check(under_way, number):
    own.shuffle(under_way)
    for ranks, handle in under_way:
        result = hvd.synchronize(handle)
        expected = float(sum(ranks) + number * len(ranks))
        assert bool((result == expected).all()), f"round {number}, ranks {ranks}: {result} instead of {expected}"


until = time.monotonic() + seconds
rounds = 0
while rounds < most_rounds:
    change_sets()
    check(use_sets(rounds), rounds)
    rounds += 1
    if rounds % ROUNDS_PER_LOOK == 0 and hvd.broadcast(torch.tensor(time.monotonic() > until), 0):
        break
for process_set in [sets[ranks] for ranks in sets if len(ranks) < SIZE]:
    assert hvd.remove_process_set(process_set)
hvd.shutdown()
report(rounds)
