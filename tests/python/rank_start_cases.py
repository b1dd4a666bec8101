"""When DistributedOptimizer starts what its hooks have collected; runs as a rank (test_multi.py), on any number of ranks.

How many cores the ranks have is told by the cases, so that they do the same on every machine. They are all started and waited
for when backward ends; some cases leave that out, and then they are collected still, as they are in the middle of it.
"""

import contextlib
import gc
import os
import pathlib
import sys
import threading
import time

import torch
import torch.utils.checkpoint
from patience import PATIENCE, wait_until
from rank_side import raises, run_cases
from torch_training import within_backward

import horovod.torch as hvd
from horovod.common import _lib, _wait

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


@contextlib.contextmanager
def cores_of_the_host(count):
    real = _lib.feature
    _lib.feature = lambda number: count if number == _lib.NODE_CORES else real(number)
    try:
        yield
    finally:
        _lib.feature = real


@contextlib.contextmanager
def starts():
    """How many gradients each start took, in order."""
    counts = []
    real = _lib.Batch.start

    def counted(batch, waits):
        before = batch.started
        status = real(batch, waits)
        counts.append(batch.started - before)
        return status

    _lib.Batch.start = counted
    try:
        yield counts
    finally:
        _lib.Batch.start = real


def make_model(seed=3):
    """Of six gradients, the middle ones large."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Linear(8, 600), torch.nn.Linear(600, 600))


def wrapped(model, prefix=""):
    named = [(prefix + name, p) for name, p in model.named_parameters()]
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named)


def backward(model):
    model(torch.full((1, 2), RANK + 1.0)).square().mean().backward()


def ready(cores, prefix="", model=None):
    """A model and an optimizer that has seen how many cores there are."""
    model = model or make_model()
    optimizer = wrapped(model, prefix)
    with cores_of_the_host(cores):
        backward(model)
        optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def collected(prefix=""):
    """The same, with gradients that nobody has started."""
    model, optimizer = ready(1, prefix)
    with within_backward():
        backward(model)
    batch = optimizer._hvd_reducer.common.batch
    assert SIZE == 1 or (len(batch.addresses) == 6 and batch.started == 0), (batch.addresses, batch.started)
    return model, optimizer


def check_equal(model):
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert all(torch.equal(weights, other) for other in hvd.allgather(weights.unsqueeze(0)))


def case_the_cores_of_the_host():
    hvd.barrier()
    cores = _lib.feature(_lib.NODE_CORES)
    if SIZE == 1:
        assert cores == 0
    else:
        assert len(os.sched_getaffinity(0)) <= cores <= os.cpu_count()
        assert hvd.allgather_object(cores) == [cores] * SIZE


def case_large_gradients_start_during_backward():
    """Where there may be a core for it. What was there before goes with it; the end of backward starts what is left."""
    for cores in (0, 2 * SIZE):  # 0: on several hosts
        model, optimizer = ready(cores)
        with starts() as counts:
            backward(model)
        assert SIZE == 1 or (len(counts) > 1 and sum(counts) == 6), counts
        optimizer.step()
        check_equal(model)


def case_without_cores_to_spare_they_start_when_backward_ends():
    model, optimizer = ready(2 * SIZE - 1)
    for _ in range(3):
        with starts() as counts:
            backward(model)
        assert SIZE == 1 or counts == [6], counts
        optimizer.step()
        batch = optimizer._hvd_reducer.common.batch
        assert len(batch.addresses) == batch.started == 0
        assert not _wait.collections
        check_equal(model)
        optimizer.zero_grad()


def case_a_rank_may_wait_for_another_that_has_made_its_step():
    """By means of its own, of which the library knows nothing."""
    stepped = pathlib.Path(os.environ["HVD_TEST_REPORTS"]) / "rank-0-has-stepped"
    model, optimizer = ready(1)
    backward(model)
    if RANK != 0:
        wait_until(stepped.exists, "rank 0's step waits for gradients that this rank has made")
    optimizer.step()
    if RANK == 0:
        stepped.touch()
    check_equal(model)


def case_a_backward_within_backward():
    """The inner one's end starts what is there; the outer one's the rest."""
    model, optimizer = ready(1)
    inner, outer = model[2], torch.nn.Sequential(model[0], model[1])
    x = torch.full((1, 2), RANK + 1.0, requires_grad=True)
    with starts() as counts:
        torch.utils.checkpoint.checkpoint(inner, outer(x), use_reentrant=True).square().mean().backward()
    assert SIZE == 1 or counts == [2, 4], counts
    optimizer.step()
    check_equal(model)


def case_a_backward_that_fails_leaves_nothing_behind():
    model, optimizer = ready(1)

    def fail(_):
        raise RuntimeError("in the middle")

    hook = model[1].weight.register_hook(fail)
    raises(RuntimeError, backward, model)
    hook.remove()
    optimizer.synchronize()  # with zeros for what this rank has not made
    optimizer.zero_grad()
    with starts() as counts:
        backward(model)
    assert SIZE == 1 or counts == [6], counts
    optimizer.step()
    assert not _wait.collections
    check_equal(model)


def case_ranks_may_step_before_or_after_another_operation():
    def other(name):
        assert hvd.allreduce(torch.ones(3), name=name, op=hvd.Sum).eq(SIZE).all()

    def polled(name):
        handle = hvd.allreduce_async(torch.ones(3), name=name, op=hvd.Sum)
        while not hvd.poll(handle):
            pass
        hvd.synchronize(handle)

    for call in (other, polled, lambda _: hvd.barrier()):
        model, optimizer = collected()
        if RANK == 0:
            optimizer.step()
        call("beside the step")
        if RANK != 0:
            optimizer.step()
        check_equal(model)


def case_ranks_may_step_two_optimizers_in_either_order():
    (first, one), (second, other) = collected("first."), collected("second.")
    for optimizer in (one, other) if RANK == 0 else (other, one):
        optimizer.step()
    assert not _wait.collections
    check_equal(first)
    check_equal(second)


def case_what_nobody_wants_any_more_is_not_started():
    model, optimizer = collected()
    del model, optimizer
    gc.collect()
    assert not _wait.collections
    hvd.barrier()


def case_the_step_tells_that_a_start_failed():
    model, optimizer = collected()
    real, _lib._enqueue_many = _lib._enqueue_many, lambda *_: _lib.INVALID
    try:
        hvd.barrier()
    finally:
        _lib._enqueue_many = real
    assert not _wait.collections
    if SIZE > 1:
        raises(ValueError, optimizer.step)
    optimizer.zero_grad()
    backward(model)
    optimizer.step()
    check_equal(model)


# ---- backward in other threads than the step, as torch runs the part of it that is on a GPU ----


def in_threads(*functions):
    """Runs them at the same time, each in a thread of its own; raises what one of them has raised."""
    together = threading.Barrier(len(functions))
    failures = []

    def run(function):
        together.wait()
        try:
            function()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a backward pass hangs"
    if failures:
        raise failures[0]


@contextlib.contextmanager
def switching_often():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


class WaitsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        hvd.allreduce(torch.ones(3), name="in backward")
        return gradient


def case_a_wait_in_backward_starts_what_its_thread_has_collected():
    """The last layer's gradients are there when rank 0's backward waits; the others come to that when they have these."""
    torch.manual_seed(4)
    (last, other), (first, one) = ready(1, "last.", torch.nn.Linear(2, 8)), ready(1, "first.")

    def whole_backward():
        y = first(torch.full((1, 2), RANK + 1.0))
        last(WaitsInBackward.apply(y)[:, :2]).square().mean().backward()

    def backward_in_parts():
        y = first(torch.full((1, 2), RANK + 1.0))
        part = y.detach().requires_grad_()
        last(part[:, :2]).square().mean().backward()
        hvd.allreduce(torch.ones(3), name="in backward")
        y.backward(part.grad)

    in_threads(whole_backward if RANK == 0 else backward_in_parts)
    other.step()
    one.step()
    assert not _wait.collections
    check_equal(first)
    check_equal(last)


def case_a_wait_of_another_thread_starts_what_is_collected():
    for wait in (hvd.barrier, lambda: hvd.allreduce(torch.ones(1), name="of another")):
        model, optimizer = collected()
        if RANK == 0:
            in_threads(wait)
        optimizer.step()
        if RANK != 0:
            wait()
        check_equal(model)


def two_branches(**options):
    torch.manual_seed(4)
    branches = torch.nn.ModuleList(torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(12))) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(branches.parameters(), lr=0.1), branches.named_parameters(), **options
    )
    return branches, optimizer


def check_branches(branches, optimizer, rounds):
    for _ in range(rounds):
        with within_backward():
            in_threads(*(lambda branch=branch: backward(branch) for branch in branches))
        yield
        optimizer.step()
        assert not _wait.collections
        optimizer.zero_grad()
    check_equal(branches)


def case_hooks_in_two_threads_lose_no_gradient():
    branches, optimizer = two_branches()
    with switching_often():
        for _ in check_branches(branches, optimizer, 5):
            batch = optimizer._hvd_reducer.common.batch
            addresses = [gradient.plan.address for gradient in optimizer._hvd_reducer.gradients.values()]
            assert sorted(batch.addresses) == sorted(addresses)


def case_a_gradient_that_comes_while_others_are_started_is_started_once():
    torch.manual_seed(4)
    branches = torch.nn.ModuleList(torch.nn.Linear(2, 40000) for _ in range(2))
    optimizer = ready(2 * SIZE, model=branches[0])[1]
    optimizer.add_param_group({"params": list(branches[1].parameters())})
    batch = optimizer._hvd_reducer.common.batch
    is_starting = threading.Event()
    counts = []
    real = _lib._enqueue_many

    def slow(context, plans, count, *arguments):
        counts.append(count)
        is_starting.set()
        before, deadline = len(batch.addresses), time.monotonic() + PATIENCE
        while len(counts) == 1 and len(batch.addresses) == before:  # another's hook may go on
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return real(context, plans, count, *arguments)

    def second():
        assert SIZE == 1 or is_starting.wait(PATIENCE)
        backward(branches[1])

    _lib._enqueue_many = slow
    try:
        with within_backward():
            in_threads(lambda: backward(branches[0]), second)
        optimizer.step()
    finally:
        _lib._enqueue_many = real
    assert SIZE == 1 or (len(counts) > 1 and sum(counts) == 4), counts
    check_equal(branches)


def case_hooks_in_two_threads_start_their_group_once():
    branches, optimizer = two_branches(groups=1)
    enqueued = []
    real = _lib._enqueue_group
    _lib._enqueue_group = lambda *arguments: enqueued.append(1) or real(*arguments)
    try:
        with switching_often():
            for _ in check_branches(branches, optimizer, 5):
                assert SIZE == 1 or enqueued == [1], enqueued
                enqueued.clear()
    finally:
        _lib._enqueue_group = real


if __name__ == "__main__":
    run_cases(dict(globals()), hvd.barrier)
    hvd.shutdown()
