"""A rank that ends while torch still works on an operation of the backend "hvd" in the background.

    rank_exit.py callback     a callback of the operation's future runs while Python ends
    rank_exit.py alone        rank 0 waits for what the others never ask for
"""

import os
import pathlib
import sys
import threading
import time

import torch
import torch.distributed as dist

import horovod.torch.backend  # noqa: F401

dist.init_process_group("hvd")
how = sys.argv[1]
has_asked = pathlib.Path(os.environ["HVD_TEST_REPORTS"], "asked")
has_begun = threading.Event()


def callback(_):
    has_begun.set()
    time.sleep(0.3)  # sleeps: so that Python ends meanwhile, if nothing holds it up


if how == "callback" or dist.get_rank() == 0:
    future = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    later = future.then(callback)
if how == "callback":
    has_begun.wait()
elif dist.get_rank() == 0:
    has_asked.touch()
else:
    while not has_asked.exists():  # who leaves before is an error of those who ask then
        time.sleep(0.01)
print(f"rank {dist.get_rank()} ends", flush=True)
