"""A rank of MPI, by mpi4py: sums the ranks over MPI and prints it; then HOW says how it goes on, for the rank WHO."""

import os
import sys
import time

from mpi4py import MPI

how, who = (sys.argv[1], int(sys.argv[2])) if len(sys.argv) > 2 else ("end", 0)
world = MPI.COMM_WORLD
assert world.Get_rank() == int(os.environ["HVD_RANK"])
print(f"rank {world.Get_rank()} of {world.Get_size()} sums {world.allreduce(world.Get_rank() + 1)}", flush=True)
if how == "abort" and world.Get_rank() == who:
    world.Abort(7)
if how == "exit" and world.Get_rank() == who:
    os._exit(5)
if how == "kill" and world.Get_rank() == who:
    os.kill(os.getpid(), 9)
if how != "end":
    world.Barrier()
    time.sleep(1000)
