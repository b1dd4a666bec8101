"""One of two ranks that reduce small tensors from Python; rank 0 prints {what: seconds a call}.

Usage: small_rank.py hvd|gloo TENSORS      "one": 4 bytes, in place; "list": TENSORS tensors of 400 bytes in one call;
"list in C": what the library takes of that
"""

import array
import json
import statistics
import sys
import time

import torch

ROUNDS = 9


def median_of(call, calls, barrier):
    times = []
    for _ in range(ROUNDS + 2):
        barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - begin) / calls)
    return statistics.median(times[2:])


def main():
    torch.set_num_threads(1)
    backend, count = sys.argv[1], int(sys.argv[2])
    one, many = torch.zeros(1), [torch.zeros(100) for _ in range(count)]
    if backend == "hvd":
        import horovod.torch as hvd
        from horovod.common import _lib

        hvd.init()
        group = _lib.HostGroup([
            _lib.Plan(_lib.ALLREDUCE, _lib.FLOAT32, tensor.shape, f"in C {i}") for i, tensor in enumerate(many)
        ])  # fmt: skip
        addresses = array.array("Q", [tensor.data_ptr() for tensor in many])
        group.set_inputs(addresses)
        group.set_outputs(addresses)
        rank, barrier = hvd.rank(), hvd.barrier
        calls = {"one": lambda: hvd.allreduce_(one, name="one", op=hvd.Sum),
                 "list": lambda: hvd.grouped_allreduce_(many, name="many", op=hvd.Sum), "list in C": group.execute}  # fmt: skip
    else:
        import torch.distributed as dist

        dist.init_process_group("gloo")
        rank, barrier = dist.get_rank(), dist.barrier
        calls = {"one": lambda: dist.all_reduce(one), "list": lambda: dist.all_reduce_coalesced(many)}
    medians = {name: median_of(call, 2000 if name == "one" else 50, barrier) for name, call in calls.items()}
    if rank == 0:
        print(json.dumps(medians), flush=True)
    if backend != "hvd":
        dist.destroy_process_group()


main()
