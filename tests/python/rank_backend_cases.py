"""The cases of the torch.distributed backend; runs as a rank (test_multi.py), on any number of ranks."""

import os
import threading

import torch
import torch.distributed as dist
import torch.nn.functional as F
from rank_side import is_torch, raises, run_cases

import horovod.torch as hvd
import horovod.torch.backend  # noqa: F401  (registers it)
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import get_process_set_ids_and_ranks
from horovod.torch import mpi_ops

# As hvdrun sets them; the agent of the tests does not.
os.environ.setdefault("RANK", os.environ.get("HVD_RANK", "0"))
os.environ.setdefault("WORLD_SIZE", os.environ.get("HVD_SIZE", "1"))
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
folder = os.environ["HVD_TEST_REPORTS"]
dist.init_process_group("hvd", init_method=f"file://{folder}/store", rank=int(os.environ["RANK"]),
                        world_size=int(os.environ["WORLD_SIZE"]))  # fmt: skip
RANK, SIZE = dist.get_rank(), dist.get_world_size()
GOES_ON = is_torch(2, 8)  # with earlier versions each operation is done when its call returns


def case_identity():
    assert dist.get_backend() == "hvd" and (hvd.rank(), hvd.size()) == (RANK, SIZE)


def case_all_reduce():
    for op, expected in [
        (dist.ReduceOp.SUM, sum(range(SIZE))),
        (dist.ReduceOp.MAX, SIZE - 1),
        (dist.ReduceOp.MIN, 0),
        (dist.ReduceOp.AVG, sum(range(SIZE)) / SIZE),
    ]:
        tensor = torch.full((3, 2), float(RANK))
        dist.all_reduce(tensor, op)
        torch.testing.assert_close(tensor, torch.full((3, 2), float(expected)))
    strided = torch.full((2, 3), float(RANK)).t()
    work = dist.all_reduce(strided, async_op=True)
    work.wait()
    assert work.is_completed() and torch.equal(strided, torch.full((3, 2), float(sum(range(SIZE)))))
    raises(NotImplementedError, dist.all_reduce, torch.ones(1, dtype=torch.int32), dist.ReduceOp.BXOR)


def case_broadcast_and_reduce():
    for root in range(SIZE):
        tensor = torch.full((2,), RANK)
        dist.broadcast(tensor, root)
        assert tensor.tolist() == [root, root]
        tensor = torch.full((2,), 1.0)
        dist.reduce(tensor, root)
        assert tensor[0] == (SIZE if RANK == root else 1.0)


def case_gather_and_scatter():
    tensor = torch.full((2, 2), RANK)
    outputs = [torch.empty_like(tensor) for _ in range(SIZE)]
    dist.all_gather(outputs, tensor)
    assert all(torch.equal(t, torch.full((2, 2), r)) for r, t in enumerate(outputs))
    flat = torch.empty(SIZE * 2, 2, dtype=tensor.dtype)
    dist.all_gather_into_tensor(flat, tensor)
    assert torch.equal(flat, torch.cat(outputs))
    gathered = [torch.empty_like(tensor) for _ in range(SIZE)] if RANK == SIZE - 1 else None
    dist.gather(tensor, gathered, dst=SIZE - 1)
    assert gathered is None or all(torch.equal(a, b) for a, b in zip(gathered, outputs))
    output = torch.empty(2, 2, dtype=tensor.dtype)
    dist.scatter(output, outputs if RANK == 0 else None, src=0)
    assert torch.equal(output, tensor)
    objects = [None] * SIZE
    dist.all_gather_object(objects, {"rank": RANK})
    assert objects == [{"rank": r} for r in range(SIZE)]
    shared = ["root" if RANK == 0 else None]
    dist.broadcast_object_list(shared)
    assert shared == ["root"]


def case_reduce_scatter():
    parts = [torch.full((2, 2), float(RANK + to)) for to in range(SIZE)]
    expected = torch.full((2, 2), float(sum(r + RANK for r in range(SIZE))))
    output = torch.empty(2, 2)
    dist.reduce_scatter(output, parts)
    assert torch.equal(output, expected)
    dist.reduce_scatter_tensor(output, torch.cat(parts))
    assert torch.equal(output, expected)
    dist.reduce_scatter(output, parts, op=dist.ReduceOp.MAX)
    assert torch.equal(output, torch.full((2, 2), float(SIZE - 1 + RANK)))


def case_all_to_all():
    sent = torch.arange(SIZE * 2).view(SIZE * 2, 1) + 100 * RANK
    output = torch.empty_like(sent)
    dist.all_to_all_single(output, sent)
    assert output.flatten().tolist() == [100 * r + 2 * RANK + i for r in range(SIZE) for i in range(2)]
    outputs = [torch.empty(r + 1) for r in range(SIZE)]
    dist.all_to_all(outputs, [torch.full((RANK + 1,), float(RANK)) for _ in range(SIZE)])
    assert all(torch.equal(t, torch.full((r + 1,), float(r))) for r, t in enumerate(outputs))


def case_barrier_and_what_is_not_there():
    dist.barrier()
    if SIZE > 1:
        raises(NotImplementedError, dist.recv, torch.ones(1))


def case_gather_sends_to_the_root_only():
    real, mpi_ops.allgather = mpi_ops.allgather, None  # which would send everything to everyone
    try:
        gathered = [torch.empty(2) for _ in range(SIZE)] if RANK == 0 else None
        dist.gather(torch.full((2,), float(RANK)), gathered)
    finally:
        mpi_ops.allgather = real
    assert gathered is None or [t.tolist() for t in gathered] == [[r, r] for r in range(SIZE)]


def case_complex_numbers():
    class Rotary(torch.nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.register_buffer("frequencies", torch.polar(torch.ones(3), torch.arange(3.0) + RANK))

    model = torch.nn.parallel.DistributedDataParallel(Rotary())
    torch.testing.assert_close(model.module.frequencies, torch.polar(torch.ones(3), torch.arange(3.0)))
    group, sums = dist.group.WORLD, sum(range(SIZE))
    number = torch.complex(torch.tensor([1.0, RANK]), torch.tensor(2.0))
    expected = torch.complex(torch.tensor([float(SIZE), sums]), torch.tensor(2.0 * SIZE))
    # As torch's C++ code calls them: dist's functions take complex numbers apart themselves.
    for tensor, result in ((number.clone(), expected), (number.clone().conj(), expected.conj()), (number[1].clone(), expected[1])):
        group.allreduce([tensor]).wait()
        assert torch.equal(tensor, result), (tensor, result)
    group.allreduce_coalesced([coalesced := number.clone()]).wait()
    assert torch.equal(coalesced, expected), (coalesced, expected)
    group._reduce_scatter_base(part := torch.empty(2, dtype=torch.complex64), number.repeat(SIZE)).wait()
    assert torch.equal(part, expected)
    for tensor in (number.clone(), number.clone().conj()):
        group.broadcast([tensor]).wait()
        assert torch.equal(tensor.real, torch.tensor([1.0, 0.0])) and tensor.imag.abs().eq(2).all()


def case_types_that_are_only_moved():
    for name in ("float8_e4m3fn", "float8_e5m2", "uint32", "uint64", "complex128"):
        dtype = getattr(torch, name, None)
        if dtype is None:
            continue

        def of(rank, count=6, dtype=dtype):
            return (torch.arange(count) + rank).to(dtype)

        def check(tensor, rank, count=6, of=of):
            assert tensor.to(torch.complex128).equal(of(rank, count).to(torch.complex128)), tensor

        for is_async in (False, True):
            wait = (lambda work: work.wait()) if is_async else (lambda _: None)
            together = torch.empty(SIZE * 6, dtype=dtype)
            wait(dist.all_gather_into_tensor(together, of(RANK), async_op=is_async))
            for rank, part in enumerate(together.split(6)):
                check(part, rank)
            one = of(RANK)
            wait(dist.broadcast(one, SIZE - 1, async_op=is_async))
            check(one, SIZE - 1)
        parts = [torch.empty(6, dtype=dtype) for _ in range(SIZE)]
        dist.all_gather(parts, of(RANK))
        [check(part, rank) for rank, part in enumerate(parts)]
        dist.gather(of(RANK), parts if RANK == 0 else None)
        dist.scatter(one := torch.empty(6, dtype=dtype), parts if RANK == 0 else None)
        check(one, RANK)
        dist.all_to_all_single(together, torch.cat([of(RANK).view(torch.uint8)] * SIZE).view(dtype))
        check(together[-6:], SIZE - 1)
        unlike = [torch.empty(rank + 1, dtype=dtype) for rank in range(SIZE)]
        dist.all_to_all(unlike, [of(RANK, RANK + 1) for _ in range(SIZE)])
        [check(part, rank, rank + 1) for rank, part in enumerate(unlike)]


def case_sums_with_a_factor():
    operator = torch._C._distributed_c10d._make_nccl_premul_sum(0.5)
    expected = SIZE / 2
    dist.all_reduce(total := torch.ones(3), operator)
    assert total.eq(expected).all()
    for is_async in (False, True):
        part = torch.empty(2)
        work = dist.reduce_scatter_tensor(part, torch.ones(2 * SIZE), operator, async_op=is_async)
        _ = is_async and work.wait()
        assert part.eq(expected).all()


def case_a_group_of_other_backends_too():
    """torch takes the first that is a process group for all devices."""
    if not is_torch(2, 4):
        return
    for backends in ("cpu:hvd,cuda:gloo", *(["cuda:gloo,cpu:hvd"] if SIZE == 1 else [])):  # (Gloo is let go while it connects)
        group = dist.new_group(backend=backends)
        said = raises(ValueError, dist.all_reduce, torch.ones(1), group=group)
        assert 'backend="hvd"' in said and 'new_group(backend="gloo")' in said, said


def case_operations_go_on():
    """Rank 0 comes late, and the others are not kept from going on."""
    if not GOES_ON:
        return
    total = sum(range(SIZE))
    starts = {
        "all_reduce": lambda: (t := torch.full((3,), RANK), dist.all_reduce(t, async_op=True)),
        "broadcast": lambda: (t := torch.full((2,), RANK + total), dist.broadcast(t, 0, async_op=True)),
        "all_gather": lambda: (
            t := torch.empty(SIZE), dist.all_gather_into_tensor(t, torch.tensor([float(RANK)]), async_op=True)),
        "reduce_scatter": lambda: (
            t := torch.empty(1), dist.reduce_scatter_tensor(t, torch.full((SIZE,), float(RANK)), async_op=True)),
    }  # fmt: skip
    expected = {"all_reduce": [total] * 3, "broadcast": [total] * 2, "all_gather": list(range(SIZE)),
                "reduce_scatter": [total]}  # fmt: skip
    for name, start in starts.items():
        for wait in (lambda w: w.wait(), lambda w: w.get_future().wait(), spin):
            if RANK == 0:
                hvd.barrier()
            tensor, work = start()
            if RANK != 0:
                assert not work.is_completed(), name
                hvd.barrier()
            wait(work)
            assert work.is_completed() and work.is_success() and tensor.tolist() == expected[name], name


def spin(work):
    while not work.is_completed():
        pass


def case_an_operation_that_fails_later():
    if SIZE > 1 and GOES_ON:
        work = dist.all_reduce(torch.ones(2 + RANK), async_op=True)
        raises(HorovodInternalError, work.wait)
        assert isinstance(work.exception(), HorovodInternalError) and not work.is_success()
        work = dist.all_reduce(torch.ones(2 + RANK), async_op=True)
        raises(Exception, work.get_future().wait)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == SIZE


def case_distributed_data_parallel():
    torch.manual_seed(RANK)  # DDP makes them alike
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(model(torch.randn(6, 4)), torch.ones(6, 2)).backward()
        optimizer.step()
    for p in model.parameters():
        assert all(torch.equal(t, p) for t in hvd.allgather(p.detach().unsqueeze(0)))


def case_fully_sharded():
    if not is_torch(2, 6):
        return
    from torch.distributed._composable.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    reference = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    reference.load_state_dict(model.state_dict())
    fully_shard(model, mesh=init_device_mesh("cpu", (SIZE,)))
    x = torch.randn(4, 4)
    model(x).sum().backward()
    reference(x).sum().backward()
    for p, q in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(p.grad.full_tensor(), q.grad)
    if is_torch(2, 13):
        model.set_gradient_divide_factor(3.0 * SIZE)
        model.set_allocate_memory_from_process_group_for_comm(True)
        model.zero_grad()
        model(x).sum().backward()
        for p, q in zip(model.parameters(), reference.parameters()):
            torch.testing.assert_close(p.grad.full_tensor(), q.grad / 3)


def total_of(value, group):
    tensor = torch.tensor([float(value)])
    dist.all_reduce(tensor, group=group)
    return tensor.item()


def case_a_group_of_a_process_set_that_is_there():
    """(Before the cases that make groups of these ranks.)"""
    if SIZE < 3:
        return
    known = hvd.add_process_set([1, 2])
    before = len(get_process_set_ids_and_ranks())
    group = dist.new_group([1, 2])
    if known.included():
        assert total_of(RANK, group) == 3
        dist.destroy_process_group(group)
    again = dist.new_group([1, 2])
    if known.included():
        assert total_of(RANK, again) == 3
    assert len(get_process_set_ids_and_ranks()) == before
    hvd.remove_process_set(known)


def case_groups():
    everyone = dist.new_group(list(range(SIZE)))
    assert total_of(1, everyone) == SIZE
    with torch.device("meta"):  # a default device
        dist.barrier(everyone)
    alone = [dist.new_group([rank]) for rank in range(SIZE)][RANK]
    assert total_of(RANK, alone) == RANK
    # Overlapping ones, each of which some ranks are not in.
    pairs = {first: dist.new_group([first, first + 1]) for first in range(SIZE - 1)}
    for first, pair in pairs.items():
        if RANK in (first, first + 1):
            assert total_of(RANK, pair) == 2 * first + 1
            tensor = torch.full((2,), RANK)
            dist.broadcast(tensor, src=first + 1, group=pair)
            assert tensor.tolist() == [first + 1] * 2
            gathered = [torch.empty(1) for _ in range(2)]
            dist.all_gather(gathered, torch.tensor([float(RANK)]), group=pair)
            assert [t.item() for t in gathered] == [first, first + 1]
            objects = [None, None]
            dist.all_gather_object(objects, RANK, group=pair)
            assert objects == [first, first + 1]
    hvd.allgather_object(None)  # the sets that others made are here by then
    assert len(get_process_set_ids_and_ranks()) == 1 + (SIZE if SIZE > 1 else 0) + (SIZE - 1 if SIZE > 2 else 0)


def case_a_group_that_only_its_members_know_of():
    if SIZE < 3:
        return
    members = [0, SIZE - 1]
    if RANK in members:
        group = dist.new_group(members, use_local_synchronization=True)
        assert total_of(RANK, group) == SIZE - 1
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == SIZE


def case_groups_of_the_same_ranks_in_threads():
    """Each rank uses them in an order of its own."""
    groups = [dist.new_group(list(range(SIZE))) for _ in range(3)]
    groups = [*groups, *(dist.new_group([0, SIZE - 1]) for _ in range(2))] if SIZE > 2 else groups
    mine = [(i, group) for i, group in enumerate(groups) if RANK in dist.get_process_group_ranks(group)] \
        if RANK in (0, SIZE - 1) else list(enumerate(groups[:3]))  # fmt: skip
    wrong = []

    def use(number, group):
        size = dist.get_world_size(group)
        for turn in range(20):
            if total_of(100 * number + turn, group) != size * (100 * number + turn):
                wrong.append((number, turn))
            dist.barrier(group)

    threads = [threading.Thread(target=use, args=one) for one in (mine if RANK % 2 else mine[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def case_groups_that_cannot_be():
    if SIZE > 1 and is_torch(2, 6):
        said = raises(ValueError, dist.new_group, [1, 0], sort_ranks=False) if RANK < 2 else \
            dist.new_group([1, 0], sort_ranks=False) or ""  # fmt: skip
        assert RANK > 1 or "ascending order" in said, said


def case_data_parallel_within_a_group():
    if SIZE < 3:
        return
    members = [0, SIZE - 1]
    group = dist.new_group(members)
    if RANK in members:
        torch.manual_seed(RANK)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            F.mse_loss(model(torch.randn(6, 4)), torch.ones(6, 2)).backward()
            optimizer.step()
        for p in model.parameters():
            others = [torch.empty_like(p) for _ in members]
            dist.all_gather(others, p.detach(), group=group)
            assert torch.equal(others[0], others[1])


def check_sharded(mesh, rank_in_mesh):
    from torch.distributed._composable.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    reference = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    reference.load_state_dict(model.state_dict())
    fully_shard(model, mesh=mesh)
    x = [torch.randn(4, 4) for _ in range(mesh.size())]
    model(x[rank_in_mesh]).sum().backward()
    sum(reference(one).sum() for one in x).div(mesh.size()).backward()
    for p, q in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(p.grad.full_tensor(), q.grad)


def case_sharded_within_a_group():
    if SIZE < 3 or not is_torch(2, 6):
        return
    from torch.distributed.device_mesh import DeviceMesh

    members = [1, SIZE - 1]
    group = dist.new_group(members)
    if RANK in members:
        check_sharded(DeviceMesh.from_group(group, "cpu"), members.index(RANK))


def case_sharded_and_replicated():
    if SIZE == 4 and is_torch(2, 6):
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
        check_sharded(mesh, RANK)
        assert total_of(RANK, mesh["shards"].get_group()) == (1 if RANK < 2 else 5)
        assert total_of(RANK, mesh["replicas"].get_group()) == (2 if RANK % 2 == 0 else 4)


def case_messages():
    """(After the cases that make sets of two ranks, or count those that are there.)"""
    if SIZE == 1:
        return
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        got = torch.zeros(2, 3, dtype=dtype)
        requests = dist.batch_isend_irecv([
            dist.P2POp(dist.irecv, got, before), dist.P2POp(dist.isend, torch.full((2, 3), RANK + 1, dtype=dtype), after)
        ])  # fmt: skip
        for request in requests:
            request.wait()
        assert torch.equal(got, torch.full((2, 3), before + 1, dtype=dtype))
    first, second = torch.zeros(1), torch.zeros(1)
    if RANK == 0:
        works = [dist.isend(torch.tensor([1.0]), 1, tag=7), dist.isend(torch.tensor([2.0]), 1, tag=8)]
        assert all(work.wait() for work in works)
    elif RANK == 1:
        dist.recv(second, 0, tag=8)
        dist.recv(first, 0, tag=7)
        assert (first.item(), second.item()) == (1.0, 2.0)


if __name__ == "__main__":
    run_cases(dict(globals()), hvd.barrier)
    dist.destroy_process_group()
    hvd.shutdown()
