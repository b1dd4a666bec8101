"""A rank of MPI, as HOW says; started by mpirun (test_torch_mpi.py). How ranks meet has nothing to do with torch, which takes
seconds to import, so that only what needs its handles imports it."""

import json
import os
import signal
import sys

import numpy as np
from rank_side import report

how = sys.argv[1]
if how in ("mpi4py_first", "unknown_launcher"):
    from mpi4py import MPI
if how == "unknown_launcher":
    for name in [name for name in os.environ if name.startswith(("OMPI_COMM_WORLD_", "PMI", "SLURM_"))]:
        del os.environ[name]

from horovod.common import _arrays, _lib  # noqa: E402  (after mpi4py, which starts MPI when it is imported)
from horovod.common import basics as hvd  # noqa: E402
from horovod.common.exceptions import HorovodInternalError  # noqa: E402


def reduced(array, name=None):
    return _arrays.allreduce([array], [name], _lib.SUM)[0].tolist()


def total(count=3):
    return reduced(np.ones(count) * (hvd.rank() + 1))[0]


def place():
    return {"rank": hvd.rank(), "size": hvd.size(), "local": [hvd.local_rank(), hvd.local_size()],
            "cross": [hvd.cross_rank(), hvd.cross_size()], "mpi": hvd.mpi_enabled(), "gloo": hvd.gloo_enabled(),
            "threads": hvd.mpi_threads_supported(), "total": total()}  # fmt: skip


def part_of_world():
    """A job of some ranks by their numbers, then by a communicator in another order, then of all."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    me = world.Get_rank()
    even, odd = range(0, world.Get_size(), 2), range(1, world.Get_size(), 2)
    told = []
    hvd.init(comm=list(odd if me % 2 else even))
    told.append([hvd.rank(), hvd.size(), total()])
    _arrays.barrier()
    hvd.shutdown()
    backwards = world.Split(0, -me)
    hvd.init(comm=backwards)
    told.append([hvd.rank(), hvd.size(), _arrays.broadcast([np.array([me])], [None], 0)[0].item()])
    _arrays.barrier()
    hvd.shutdown()
    hvd.init(comm=world)
    told.append([hvd.rank(), hvd.size(), total()])
    _arrays.barrier()
    hvd.shutdown()
    return told


def wrong_ranks():
    texts = []
    for ranks in ([99], [0, 0], "all"):
        try:
            hvd.init(comm=ranks)
        except ValueError as error:
            texts.append(str(error))
    hvd.init()
    return texts


def mpi_beside():
    """The program's own messages, on all its threads' terms, beside ours."""
    import torch
    from mpi4py import MPI

    import horovod.torch as hvd

    hvd.init()
    handles = [hvd.allreduce_async(torch.ones(200_000), name=f"t{i}", op=hvd.Sum) for i in range(20)]
    sums = [MPI.COMM_WORLD.allreduce(i) for i in range(20)]
    assert all(hvd.synchronize(handle)[0] == hvd.size() for handle in handles)
    return sums[-1] / hvd.size()


def killed():
    """Rank 1 dies in the middle; what the others are told, though hvdrun ends them too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hvd.init()
    _arrays.barrier()
    try:
        for step in range(10**9):
            if hvd.rank() == 1 and step == 20:
                os.kill(os.getpid(), 9)
            reduced(np.ones(1 << 20, np.float32), "step")
    except HorovodInternalError as error:
        return {"error": str(error), "mpi": hvd.mpi_enabled()}


def again():
    for _ in range(30):
        hvd.init()
        assert total() == hvd.size() * (hvd.size() + 1) / 2
        _arrays.barrier()
        hvd.shutdown()
    return "ok"


def fails():
    """One rank ends with an exception while the others wait for it."""
    hvd.init()
    if hvd.rank() == 1:
        raise SystemExit(3)
    total()


if how in ("plain", "mpi4py_first", "unknown_launcher"):
    hvd.init(*map(json.loads, sys.argv[2:]))
    os.environ["HVD_RANK"] = str(hvd.rank())  # for the report: hvdrun's, where it has started mpirun, is 0 for all
    report(place())
else:
    report({"part": part_of_world, "wrong": wrong_ranks, "beside": mpi_beside, "killed": killed, "again": again,
            "fails": fails}[how]())  # fmt: skip
