"""The cases of CUDA tensors; runs as a rank (test_cuda.py), on any number of ranks.

Arguments: "staged": libhvd works on no GPU, so that tensors are copied to the host and back; "fake": it works on the fake
driver's (tests/support/cuda_stand_in.py), without NCCL; "nccl": with the fake NCCL; "gpu": on what torch has, the GPU that all
ranks share or one for each.
"""

import sys
import warnings

import torch
from rank_side import raises, run_cases

import horovod.torch as hvd
from horovod.common import _lib
from horovod.torch._broadcast import broadcast_into

WAY = sys.argv[1]
if WAY == "gpu":
    def cuda(tensor):
        return tensor.cuda()

else:
    import cuda_stand_in
    from cuda_stand_in import cuda

    cuda_stand_in.install(with_driver=WAY != "staged", with_nccl=WAY == "nccl")
if WAY == "staged":
    _lib.has_devices = lambda: False

told = []  # about the hosts' memory; others warn too


def tell(message, *_):
    if "host memory" in str(message):
        told.append(str(message))


warnings.filterwarnings("always", message="tensors on")
warnings.showwarning = tell

hvd.init()
if WAY == "gpu":
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
RANK, SIZE = hvd.rank(), hvd.size()


def same(tensor, expected):
    """The tensor is on the GPU and has these values."""
    assert tensor.is_cuda and not tensor.is_cpu, tensor.device
    torch.testing.assert_close(tensor.cpu(), torch.as_tensor(expected).to(tensor.dtype))


def total(of):
    """The sum over the ranks."""
    return sum(of(rank) for rank in range(SIZE))


def case_the_way_is_the_wanted_one():
    assert WAY == "staged" or hvd.cuda_built()
    hvd.allreduce(cuda(torch.ones(2)), name="first")
    assert len(told) == (1 if WAY == "staged" else 0), told


def case_allreduce():
    values = torch.arange(6.0).view(2, 3) + RANK
    mean = torch.arange(6.0).view(2, 3) + (SIZE - 1) / 2
    same(hvd.allreduce(cuda(values), name="mean"), mean)
    for repeat in range(3):
        same(hvd.allreduce(cuda(values), name="sum", op=hvd.Sum), mean * SIZE)
    tensor = cuda(values)
    assert hvd.allreduce_(tensor, name="in place", op=hvd.Sum) is tensor
    same(tensor, mean * SIZE)
    same(hvd.allreduce(cuda(values), op=hvd.Max), torch.arange(6.0).view(2, 3) + SIZE - 1)
    same(hvd.allreduce(cuda(values), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), mean * SIZE * 2)
    same(hvd.allreduce(cuda(values).t(), name="strided"), mean.t())
    same(hvd.allreduce(cuda(values), compression=hvd.Compression.fp16), mean)
    same(hvd.allreduce(cuda(torch.empty(0))), torch.empty(0))
    same(hvd.allreduce(cuda(torch.tensor(3)), op=hvd.Sum), torch.tensor(3 * SIZE))


def case_types():
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64):
        same(hvd.allreduce(cuda(torch.full((33,), RANK + 1).to(dtype)), op=hvd.Sum, name=str(dtype)),
             torch.full((33,), total(lambda r: r + 1)))  # fmt: skip


def case_many_in_flight_are_fused():
    tensors = [cuda(torch.full((n % 7 + 1,), float(RANK + n))) for n in range(40)]
    handles = [hvd.allreduce_async(t, name=f"flight.{n}", op=hvd.Sum) for n, t in enumerate(tensors)]
    for n, handle in enumerate(handles):
        same(hvd.synchronize(handle), torch.full((n % 7 + 1,), float(total(lambda r: r + n))))


def case_group():
    tensors = [cuda(torch.full((n + 1,), float(RANK))) for n in range(5)]
    for n, reduced in enumerate(hvd.grouped_allreduce(tensors, op=hvd.Sum)):
        same(reduced, torch.full((n + 1,), float(total(lambda r: r))))
    hvd.grouped_allreduce_(tensors, op=hvd.Sum, name="group in place")
    same(tensors[4], torch.full((5,), float(total(lambda r: r))))


def case_broadcast():
    for root in range(SIZE):
        same(hvd.broadcast(cuda(torch.full((3,), RANK)), root), [root] * 3)
        tensor = cuda(torch.full((3,), float(RANK)))
        hvd.broadcast_(tensor, root, name="broadcast in place")
        same(tensor, [float(root)] * 3)


def case_allgather_of_different_rows():
    rows = torch.cat([torch.full((r + 1, 2), r) for r in range(SIZE)])
    same(hvd.allgather(cuda(torch.full((RANK + 1, 2), RANK))), rows)
    same(hvd.allgather(cuda(torch.full((RANK, 2), float(RANK))), name="some empty"),
         torch.cat([torch.full((r, 2), float(r)) for r in range(SIZE)]))  # fmt: skip
    first, second = hvd.grouped_allgather([cuda(torch.full((1,), RANK)), cuda(torch.full((2,), RANK))])
    same(first, list(range(SIZE)))
    same(second, [r for r in range(SIZE) for _ in range(2)])


def case_reducescatter():
    whole = torch.arange(float(2 * SIZE + 1)).unsqueeze(1)
    own = hvd.reducescatter(cuda(whole), op=hvd.Sum)
    same(hvd.allgather(own), whole * SIZE)


def case_alltoall():
    tensor = cuda(torch.full((SIZE * 2, 1), RANK))
    same(hvd.alltoall(tensor), torch.tensor([[r] for r in range(SIZE) for _ in range(2)]))
    splits = torch.tensor([r + 1 for r in range(SIZE)], dtype=torch.int32)
    rows, received = hvd.alltoall(cuda(torch.full((int(splits.sum()),), RANK)), splits)
    same(rows, [r for r in range(SIZE) for _ in range(RANK + 1)])
    assert received.tolist() == [RANK + 1] * SIZE


def case_adasum():
    same(hvd.allreduce(cuda(torch.ones(100)), op=hvd.Adasum, name="parallel"), torch.ones(100))


def case_barrier_and_sets():
    hvd.barrier()
    if SIZE == 1:
        return
    first = hvd.add_process_set([0])
    if RANK == 0:
        same(hvd.allreduce(cuda(torch.ones(3)), op=hvd.Sum, process_set=first), torch.ones(3))
    hvd.remove_process_set(first)


def case_what_is_wrong_is_told():
    raises(ValueError, hvd.allreduce, cuda(torch.zeros(2, dtype=torch.complex64)), op=hvd.Max)
    if SIZE > 1:
        raises(hvd.HorovodInternalError, hvd.allreduce, cuda(torch.zeros(2 + RANK)), name="shapes differ")
    same(hvd.allreduce(cuda(torch.ones(2)), name="afterwards"), torch.ones(2))


def case_optimizer():
    # Two parameters on the GPU with gradients there; no backward, which the stand-in does not have.
    weights = [torch.nn.Parameter(cuda(torch.zeros(n))) for n in (3, 70000)]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(weights, lr=1.0), named_parameters=[("a", weights[0]), ("b", weights[1])]
    )
    for step in range(3):
        for p in weights:
            p.grad = cuda(torch.full(p.shape, float(RANK + step)))
        optimizer.synchronize()
        for p in weights:
            same(p.grad, torch.full(p.shape, (SIZE - 1) / 2 + step))
        optimizer.zero_grad()


def streams():
    """Torch's default stream and another one, made into either order; none where tensors are staged."""
    if WAY == "staged":
        return []
    if WAY == "gpu":
        pair = torch.cuda.default_stream(), torch.cuda.Stream()
    else:
        pair = cuda_stand_in.Stream(0), cuda_stand_in.new_stream()
    assert pair[0].cuda_stream == 0
    return [pair, pair[::-1], (pair[1], torch.cuda.current_stream()), (pair[0], pair[0])]


on = torch.cuda.stream if WAY == "gpu" else None if WAY == "staged" else cuda_stand_in.on


def case_a_step_on_another_stream_than_the_hooks():
    for compression in (hvd.Compression.none, hvd.Compression.fp16):
        weights = [torch.nn.Parameter(cuda(torch.zeros(n))) for n in (3, 70000)]
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(weights, lr=1.0), [("a", weights[0]), ("b", weights[1])], compression=compression
        )
        for step, (hooks, steps) in enumerate(streams()):
            with on(hooks):
                for p in weights:
                    p.grad = cuda(torch.full(p.shape, float(RANK + step)))
                optimizer._hvd_reducer.start_missing(is_step=True) if SIZE > 1 else None  # as hooks do
            with on(steps):
                optimizer.synchronize()
                for p in weights:
                    same(p.grad, torch.full(p.shape, (SIZE - 1) / 2 + step))
                optimizer.zero_grad()


def case_a_wait_on_another_stream():
    for step, (first, second) in enumerate(streams()):
        with on(first):
            tensor = cuda(torch.full((50000,), float(RANK + step)))
            small = cuda(torch.full((3,), float(RANK + step)))
            strided = cuda(torch.full((3, 2), float(RANK + step))).t()
            handles = [hvd.allreduce_async_(tensor, op=hvd.Sum, name="one"),
                       broadcast_into(strided, strided, SIZE - 1, "copied"),
                       hvd.grouped_allreduce_async([small], op=hvd.Sum, name="group")]  # fmt: skip
        with on(second):
            if WAY != "gpu":
                cuda_stand_in.recorded.clear()
            results = [hvd.synchronize(handle) for handle in handles]
            same(results[0], torch.full((50000,), float(total(lambda r: r + step))))
            same(results[1], torch.full((2, 3), float(SIZE - 1 + step)))
            same(results[2][0], torch.full((3,), float(total(lambda r: r + step))))
            if WAY != "gpu":  # torch gives none of the copies out again before the second stream has read them
                wanted = set() if first.cuda_stream == second.cuda_stream else {second.cuda_stream}
                assert {stream for _, stream in cuda_stand_in.recorded} == wanted
                assert len(cuda_stand_in.recorded) == 3 * len(wanted)
                assert not wanted or strided.data_ptr() not in {memory for memory, _ in cuda_stand_in.recorded}


def case_broadcast_parameters():
    state = {"w": cuda(torch.full((4,), float(RANK))), "n": torch.tensor(RANK)}
    hvd.broadcast_parameters(state, 0)
    same(state["w"], torch.zeros(4))
    assert state["n"].item() == 0


def case_options_that_are_tensors_on_a_gpu():
    """They come to where a rank has its parameters: the last one's are on the host here."""
    is_on_host = SIZE > 1 and RANK == SIZE - 1
    weight = torch.nn.Parameter(torch.zeros(2) if is_on_host else cuda(torch.zeros(2)))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    mine = torch.full((), float(RANK + 1))
    optimizer.param_groups[0].update(lr=cuda(mine), both=(cuda(mine), [2.0, mine]), plain=RANK)
    if RANK == 0:
        optimizer.state[weight]["sparse"] = torch.sparse_coo_tensor([[1]], [3.0], (2,)) if WAY != "gpu" else (
            torch.sparse_coo_tensor([[1]], [3.0], (2,)).cuda())  # fmt: skip
    hvd.broadcast_optimizer_state(optimizer, 0)
    group = optimizer.param_groups[0]
    for tensor in (group["lr"], group["both"][0]):
        assert tensor.is_cuda != is_on_host and tensor.device == weight.device, tensor.device
        assert tensor.cpu().item() == 1.0
    assert group["both"][1][0] == 2.0 and group["both"][1][1].is_cpu and group["both"][1][1].item() == 1.0
    assert group["plain"] == 0
    assert optimizer.state[weight]["sparse"].to_dense().cpu().tolist() == [0.0, 3.0]


def case_sparse():
    rows = torch.sparse_coo_tensor(cuda(torch.tensor([[0, RANK + 1]])), cuda(torch.ones(2, 2)), (SIZE + 1, 2))
    handle = hvd.sparse_allreduce_async(rows, name="sparse", op=hvd.Sum)
    dense = handle().to_dense()
    expected = torch.ones(SIZE + 1, 2)
    expected[0] = SIZE
    torch.testing.assert_close(dense.as_subclass(torch.Tensor).cpu(), expected)


def case_sync_batch_norm():
    torch.manual_seed(RANK)
    inputs = torch.randn(4, 3)
    everyone = hvd.allgather(inputs)
    layer = hvd.SyncBatchNorm(3, affine=False, track_running_stats=False)
    with torch.no_grad():
        normal = layer(cuda(inputs))
    whole = torch.nn.functional.batch_norm(everyone, None, None, training=True)
    same(normal, whole[4 * RANK : 4 * RANK + 4])


def case_a_step_that_comes_again_makes_no_host_wait_for_the_device():
    gradients = [cuda(torch.ones(n + 1)) for n in range(100)]

    def step():
        handles = [hvd.allreduce_async_(t, name=f"step.{n}", op=hvd.Average) for n, t in enumerate(gradients)]
        for handle in handles:
            hvd.synchronize(handle)

    step()
    step()
    if WAY == "nccl":
        before = {what: cuda_stand_in.count(what) for what in ("cuMemAlloc", "cuMemHostAlloc", "cuMemFree", "ncclAllReduce")}
        waits = cuda_stand_in.host_waits()
        step()
        assert cuda_stand_in.host_waits() == waits
        after = {what: cuda_stand_in.count(what) for what in before}
        assert after.pop("ncclAllReduce") > before.pop("ncclAllReduce") or SIZE == 1
        assert after == before
    for n, gradient in enumerate(gradients):
        same(gradient, torch.ones(n + 1))


def case_nothing_more_was_told():
    assert len(told) == (1 if WAY == "staged" else 0), told


run_cases(globals(), hvd.barrier)
