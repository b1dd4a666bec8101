"""Operations of torch.distributed that go on, messages, and what else scripts expect of a backend, on "hvd"; runs as a rank
(test_multi.py), on any number of ranks."""

import contextlib
import gc
import os
import pathlib
import subprocess
import sys
import threading
from datetime import timedelta
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from patience import PATIENCE, wait_until
from rank_side import is_torch, raises, run_cases
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook

import horovod.torch as hvd
import horovod.torch.backend  # noqa: F401  (registers it)
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import _handles
from horovod.torch._works import Operation

# As hvdrun sets them; the agent of the tests does not.
os.environ.setdefault("RANK", os.environ.get("HVD_RANK", "0"))
os.environ.setdefault("WORLD_SIZE", os.environ.get("HVD_SIZE", "1"))
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
folder = pathlib.Path(os.environ["HVD_TEST_REPORTS"])
dist.init_process_group("hvd", init_method=f"file://{folder}/store", rank=int(os.environ["RANK"]),
                        world_size=int(os.environ["WORLD_SIZE"]))  # fmt: skip
RANK, SIZE = dist.get_rank(), dist.get_world_size()
GOES_ON = is_torch(2, 8)  # with earlier versions each collective is done when its call returns


def told(name):
    """A word to the other ranks by a file, of which no library knows."""
    (folder / name).touch()


def wait_for_word(name):
    wait_until((folder / name).exists, f"no word {name}")


def sum_of_ranks(tensor, **options):
    return dist.all_reduce(tensor, async_op=True, **options)


# ---- futures ----


def case_futures_come_in_any_order():
    """One of a group whose other rank comes late does not hold up that of another group."""
    if SIZE < 3:
        return
    late, soon = dist.new_group([0, 1]), dist.new_group([0, 2])
    first, second = torch.ones(1), torch.ones(1)
    if RANK == 0:
        waits = sum_of_ranks(first, group=late).get_future()
        sum_of_ranks(second, group=soon).get_future().wait()
        assert second.item() == 2 and not waits.done()
        told("soon")
        waits.wait()
        assert first.item() == 2
    elif RANK == 1:
        wait_for_word("soon")
        sum_of_ranks(first, group=late).wait()
    elif RANK == 2:
        sum_of_ranks(second, group=soon).wait()


def case_a_callback_waits_for_another_operation():
    tensor, depth = torch.ones(4), 5

    def again(left):
        def callback(future):
            other = torch.full((2,), float(left))
            dist.all_reduce(other)
            if left == 0:
                return other
            inner = sum_of_ranks(torch.ones(3)).get_future()
            inner.then(lambda f: f.value()[0]).wait()
            return sum_of_ranks(torch.ones(3)).get_future().then(again(left - 1)).wait()

        return callback

    result = sum_of_ranks(tensor).get_future().then(again(depth)).wait()
    assert tensor.eq(SIZE).all() and result.eq(0).all()


def case_a_future_that_is_asked_for_late_or_twice():
    if not GOES_ON:
        return
    work = sum_of_ranks(torch.ones(2))
    work.wait()
    assert work.get_future().wait()[0].eq(SIZE).all() and work.get_future() is work.get_future()
    assert work.result()[0].eq(SIZE).all() and work.is_success()


def with_state(model, hook, state):
    model.register_comm_hook(state(model.process_group), hook)


def trained(group, hook, state, steps=6, bucket_cap_mb=25.0, register=with_state):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(24, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16), torch.nn.Linear(16, 2))
    wrapped = torch.nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=bucket_cap_mb)
    register(wrapped, hook, state)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(RANK)
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(wrapped(torch.randn(5, 24, generator=generator)), torch.ones(5, 2)).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@contextlib.contextmanager
def flat_matrices():
    """torch 2.13's batched hook gives its matrices to a function that takes batches of them only."""
    real = powerSGD_hook._orthogonalize

    def orthogonalize(matrices, epsilon=0):
        real(matrices.unsqueeze(0) if matrices.dim() == 2 else matrices, epsilon)

    powerSGD_hook._orthogonalize = orthogonalize
    try:
        yield
    finally:
        powerSGD_hook._orthogonalize = real


@flat_matrices()
def case_hooks_give_the_same_weights_as_over_gloo():
    ours, gloo = dist.group.WORLD, dist.new_group(backend="gloo")

    def power(group):
        return powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=0.5)

    def post_local(group):
        alone = next(g for g in subgroups[group] if g is not None)
        return post_localSGD_hook.PostLocalSGDState(group, alone, start_localSGD_iter=3)

    # (All ranks make all groups.)
    def alone_groups(backend):
        groups = [dist.new_group([r], backend=backend) for r in range(SIZE)]
        return [group if r == RANK else None for r, group in enumerate(groups)]

    subgroups = {ours: alone_groups("hvd"), gloo: alone_groups("gloo")}
    for hook, state in [
        (powerSGD_hook.powerSGD_hook, power),
        (powerSGD_hook.batched_powerSGD_hook, power),
        (default_hooks.fp16_compress_hook, lambda group: group),
        *([(default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook), power)] if is_torch(2, 4) else []),
        (post_localSGD_hook.post_localSGD_hook, post_local),
    ]:
        narrow = 2e-2 if "16" in hook.__qualname__ else 1e-5
        torch.testing.assert_close(trained(ours, hook, state), trained(gloo, hook, state), rtol=narrow, atol=narrow)
    # Of several buckets, callbacks start operations while the backward pass starts others. (Over Gloo that hangs.)
    for hook in (powerSGD_hook.powerSGD_hook, powerSGD_hook.batched_powerSGD_hook):
        weights = trained(ours, hook, power, bucket_cap_mb=0.002)
        assert all(torch.equal(weights, other) for other in hvd.allgather(weights.unsqueeze(0)))


def case_hooks_that_torch_has_built_in():
    """Those that C++ code runs, which takes the value of a future for tensors."""
    ours, gloo = dist.group.WORLD, dist.new_group(backend="gloo")

    def register(model, kind, _):
        model._register_builtin_comm_hook(kind)

    for kind in (dist.BuiltinCommHookType.ALLREDUCE, dist.BuiltinCommHookType.FP16_COMPRESS):
        for bucket_cap_mb in (25.0, 0.002):
            own, theirs = (trained(group, kind, None, bucket_cap_mb=bucket_cap_mb, register=register) for group in (ours, gloo))
            torch.testing.assert_close(own, theirs, rtol=2e-2, atol=2e-2)


def case_an_error_of_a_hook_is_raised_in_the_backward_pass():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model.register_comm_hook(None, lambda _, bucket: sum_of_ranks(bucket.buffer()).get_future().then(lambda done: done.value()[7]))
    assert "list index" in raises(IndexError, model(torch.ones(3, 4)).sum().backward)


def case_works_that_nobody_holds_are_let_go():
    wait_until(lambda: not _handles._pending, f"{len(_handles._pending)} operations at the beginning")
    strided = torch.ones(2, 3).t()
    for _ in range(50):
        sum_of_ranks(torch.ones(1000))
    sum_of_ranks(strided)
    gc.collect()
    dist.barrier()
    wait_until(lambda: not _handles._pending, f"{len(_handles._pending)} operations are still held")
    wait_until(lambda: bool(strided.eq(SIZE).all()), "the result was not written")


# ---- messages ----


def pattern(size, sender, number=0):
    return (torch.arange(size, dtype=torch.int64) * 31 + sender * 7 + number).to(torch.uint8)


def case_messages_of_any_size():
    if SIZE == 1:
        raises(ValueError, dist.send, torch.ones(1), 0)
        return
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for size in (0, 1, 1 << 10, 100_003, 9 << 20, (64 << 20) if SIZE == 2 else 1):
        got = torch.zeros(size, dtype=torch.uint8)
        for work in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, pattern(size, RANK), after), dist.P2POp(dist.irecv, got, before)
        ]):  # fmt: skip
            work.wait()
        assert torch.equal(got, pattern(size, before)), size


def case_messages_before_and_after_they_are_awaited():
    """Many in flight, both ways, by tags in another order; some of them nobody waits for."""
    if SIZE == 1 or RANK > 1:
        return
    other = 1 - RANK
    for number in range(20):
        dist.isend(pattern(1000, RANK, number), other, tag=number)
    got = {number: torch.zeros(1000, dtype=torch.uint8) for number in range(20)}
    works = {number: dist.irecv(got[number], other, tag=number) for number in reversed(range(20))}
    for number in (7, *range(20)):
        works[number].wait()
        assert torch.equal(got[number], pattern(1000, other, number))
    # Of one tag they come in order, into memory that is not contiguous too, and while collectives go on.
    for number in range(3):
        dist.isend(pattern(6, RANK, number).view(2, 3), other)
    for number in range(3):
        strided = torch.zeros(3, 2, dtype=torch.uint8).t()
        assert dist.recv(strided, other) == other
        assert torch.equal(strided, pattern(6, other, number).view(2, 3))


def case_a_pipeline():
    """Activations go forth and gradients back, through layers that each rank has one of."""
    torch.manual_seed(2)
    layers = [torch.nn.Linear(64, 64) for _ in range(SIZE)]
    batches = [torch.randn(8, 64) for _ in range(4)]
    mine, kept = layers[RANK], []
    for batch in batches:
        x = batch
        if RANK > 0:
            x = torch.empty(8, 64)
            dist.recv(x, RANK - 1)
        x.requires_grad_(RANK > 0)
        y = torch.tanh(mine(x))
        kept.append((x, y))
        if RANK < SIZE - 1:
            dist.isend(y.detach(), RANK + 1)
    for x, y in reversed(kept):
        if RANK < SIZE - 1:
            gradient = torch.empty(8, 64)
            dist.recv(gradient, RANK + 1, tag=1)
            y.backward(gradient)
        else:
            y.square().mean().backward()
        if RANK > 0:
            dist.isend(x.grad, RANK - 1, tag=1)
    own = mine.weight.grad.clone()
    for layer in layers:
        layer.zero_grad()
    for batch in reversed(batches):
        for layer in layers:
            batch = torch.tanh(layer(batch))
        batch.square().mean().backward()
    torch.testing.assert_close(own, mine.weight.grad)


def case_messages_within_a_group():
    if SIZE < 3:
        return
    members = [1, SIZE - 1]
    group = dist.new_group(members)
    if RANK == 1:
        dist.send(torch.ones(5), members[1], group=group)
    elif RANK == members[1] != 1:
        got = torch.zeros(5)
        dist.recv(got, 1, group=group)
        assert got.eq(1).all()


def case_messages_of_different_sizes():
    if SIZE == 1 or RANK > 1:
        return
    call = (lambda: dist.send(torch.ones(3), 1, tag=9)) if RANK == 0 else (lambda: dist.recv(torch.ones(1), 0, tag=9))
    said = raises(HorovodInternalError, call)
    assert "[12]" in said and "[4]" in said, said


# ---- what else is expected ----


def case_uneven_splits_are_errors():
    rows = SIZE + 1
    if SIZE > 1:
        assert "evenly" in raises(ValueError, dist.all_to_all_single, torch.empty(rows), torch.empty(SIZE))
        assert "evenly" in raises(ValueError, dist.all_to_all_single, torch.empty(SIZE), torch.empty(rows))
        assert "splits" in raises((ValueError, RuntimeError), dist.all_to_all_single, torch.empty(SIZE), torch.empty(SIZE),
                                  [1] * SIZE, [1] * (SIZE - 1) + [2])  # fmt: skip
    raises((ValueError, RuntimeError), dist.all_to_all_single, torch.tensor(1.0), torch.tensor(1.0))
    huge = [torch.zeros(1, dtype=torch.uint8).expand(2**31)] * SIZE
    assert "2147483647" in raises(ValueError, dist.all_to_all, [torch.zeros(1, dtype=torch.uint8)] * SIZE, huge)
    sent, got = torch.arange(SIZE * 3.0), torch.empty(SIZE * 3)
    dist.all_to_all_single(got, sent)
    assert got.view(SIZE, 3)[:, 0].eq(3.0 * RANK).all()


def case_sparse_tensors():
    def own(rank):
        return torch.sparse_coo_tensor([[rank, 1]], torch.ones(2, 3), (SIZE + 2, 3)).coalesce()

    total = sum(own(rank).to_dense() for rank in range(SIZE))
    for is_async in (False, True):
        tensor = own(RANK)
        work = dist.all_reduce(tensor, async_op=is_async)
        if is_async:
            assert work.get_future().wait()[0].is_sparse
        torch.testing.assert_close(tensor.to_dense(), total)
    torch.manual_seed(1)
    model, twin = (torch.nn.Embedding(10, 4, sparse=sparse) for sparse in (True, False))
    twin.load_state_dict(model.state_dict())
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    words = torch.arange(4)
    for _ in range(2):
        wrapped(words + RANK).square().sum().backward()
        sum(twin(words + rank).square().sum() for rank in range(SIZE)).div(SIZE).backward()
        for module in (model, twin):
            torch.optim.SGD(module.parameters(), lr=0.1).step()
            module.zero_grad()
    torch.testing.assert_close(model.weight, twin.weight)


def case_device_types():
    import torch.distributed.checkpoint as checkpoint

    assert torch.device("cpu") in dist.group.WORLD._device_types
    inputs = [torch.full((2,), RANK), torch.full((1, 3), -RANK)]
    outputs = [[torch.empty_like(tensor) for tensor in inputs] for _ in range(SIZE)]
    with contextlib.suppress(NotImplementedError):
        dist.all_gather_coalesced([list(o) for o in zip(*outputs)], inputs)
        assert all(outputs[r][0].eq(r).all() and outputs[r][1].eq(-r).all() for r in range(SIZE))
    if not is_torch(2, 4):
        return
    state = {"weight": torch.full((3,), 4.0)}
    checkpoint.async_save(state, checkpoint_id=str(folder / "checkpoint")).result(PATIENCE)
    dist.barrier()
    loaded = {"weight": torch.zeros(3)}
    checkpoint.load(loaded, checkpoint_id=str(folder / "checkpoint"))
    assert torch.equal(loaded["weight"], state["weight"])
    with dist._coalescing_manager() as manager:
        tensors = [torch.ones(2), torch.ones(3)]
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert manager is not None and all(t.eq(SIZE).all() for t in tensors)
    tensors = [torch.full((2,), RANK) for _ in range(3)]
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            dist.broadcast(tensor, SIZE - 1, async_op=True)
    manager.wait()
    assert all(t.eq(SIZE - 1).all() for t in tensors)


def case_negated_views():
    z = torch.complex(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    view = z.conj().imag
    assert view.is_neg()
    expected = torch.tensor([-3.0, -4.0])
    one = torch._neg_view(torch.tensor([2.0]))
    assert torch.equal(hvd.allreduce(view, op=hvd.Sum), SIZE * expected)
    assert hvd.allreduce(one, op=hvd.Sum).item() == -2 * SIZE
    assert torch.equal(hvd.allgather(view), expected.repeat(SIZE)) and hvd.broadcast(one, 0).item() == -2
    hvd.allreduce_(one, op=hvd.Sum)
    assert one.item() == -2 * SIZE
    for is_async in (False, True):
        one = torch._neg_view(torch.tensor([2.0]))
        work = dist.all_reduce(one, async_op=is_async)
        _ = is_async and work.wait()
        assert one.item() == -2 * SIZE


def case_averages_of_large_integers():
    for value in (1_763_911_234_567_890_123, -9_007_199_254_740_993, (2**63 - 1) // SIZE):
        assert hvd.allreduce(torch.tensor([value])).item() == value
    assert hvd.allreduce(torch.tensor([2**53 + 1]), op=hvd.Max, postscale_factor=3.0).item() == 3 * (2**53 + 1)


def case_a_program_that_a_rank_starts_is_told():
    """It has the rank's environment, and cannot join."""
    if RANK == 0 and "HVD_JOB_ID" in os.environ:
        program = "import horovod.torch as hvd; hvd.init()"
        child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert "rank 0 has joined already" in child.stderr, child.stderr


# ---- limits of time ----


def case_a_wait_with_a_limit():
    if SIZE == 1 or not GOES_ON:
        return
    if RANK == 0:
        work = sum_of_ranks(torch.ones(1))
        assert "0.05 s" in raises(RuntimeError, work.wait, timedelta(milliseconds=50))
        assert not work.is_completed()
        told("limit")
        assert work.wait(timedelta(seconds=PATIENCE)) and work.is_success()
    else:
        wait_for_word("limit")
        assert sum_of_ranks(torch.ones(1)).wait(timedelta(seconds=PATIENCE))


def case_abort_ends_a_wait_and_a_group_does_not_outlive_its_job():
    if RANK > 0 and GOES_ON:
        work = sum_of_ranks(torch.ones(1))
        told(f"begun-{RANK}")
        for rank in range(1, SIZE):
            wait_for_word(f"begun-{rank}")  # one who aborts has left the job, in which nobody can begin any more
        dist.distributed_c10d._abort_process_group()
        raises(HorovodInternalError, work.wait)
        told(f"aborted-{RANK}")
    elif GOES_ON:
        for rank in range(1, SIZE):
            wait_for_word(f"aborted-{rank}")
    group = dist.group.WORLD
    hvd.shutdown()
    hvd.init()
    if group is not None:
        assert "make it anew" in raises(RuntimeError, dist.all_reduce, torch.ones(1))
        dist.destroy_process_group()
    dist.init_process_group("hvd", store=dist.HashStore(), rank=hvd.rank(), world_size=hvd.size())
    dist.all_reduce(tensor := torch.ones(1))
    assert tensor.item() == SIZE


def case_what_a_thread_of_ours_gives_a_gpu_comes_before_what_the_waiter_gives():
    """With a stand-in for torch.cuda that notes the order."""
    said = []

    class Event:
        def record(self):
            said.append("marked")

        def wait(self):
            said.append("waited for the mark")

    @contextlib.contextmanager
    def stream(one):
        said.append(f"on {one}")
        yield
        said.append("off")

    def finish(_):
        said.append("finished")
        return []

    with mock.patch.multiple(torch.cuda, is_initialized=lambda: True, current_stream=lambda *_: "the asker's", Event=Event, stream=stream):
        operation = Operation([], finish)
        thread = threading.Thread(target=operation.end)
        thread.start()
        thread.join()
        operation.complete()
    assert said == ["on the asker's", "finished", "marked", "off", "waited for the mark"], said


def case_the_timeout_of_a_group():
    """Comes last: ranks leave the job. Rank 0 is alive, and does not come."""
    if SIZE == 1:
        return
    group = dist.new_group(timeout=timedelta(seconds=1))
    assert dist.get_world_size(group) == SIZE
    dist.barrier()
    if RANK == 0:
        for rank in range(1, SIZE):
            wait_for_word(f"left-{rank}")
        return
    call = {
        1: lambda: dist.all_reduce(torch.ones(1), group=group),
        2: lambda: sum_of_ranks(torch.ones(1), group=group).wait(),
    }.get(RANK, lambda: sum_of_ranks(torch.ones(1), group=group).get_future().wait())
    try:
        said = raises(Exception, call)
        assert "timeout of 1 s" in said or "has left" in said or "shut down" in said, said
        if SIZE == 2:
            assert "allreduce of the group" in said and "timeout of 1 s" in said, said
    finally:
        told(f"left-{RANK}")


def barrier():
    with contextlib.suppress(HorovodInternalError):  # the others have left
        if hvd.is_initialized():
            hvd.barrier()


if __name__ == "__main__":
    run_cases(dict(globals()), barrier)
    dist.destroy_process_group()
    hvd.shutdown()
