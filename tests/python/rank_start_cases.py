"""When DistributedOptimizer starts what its hooks have collected; runs as a rank (test_multi.py), on any number of ranks.

How many cores the ranks have is told by the cases, so that they do the same on every machine. They are all started when
backward ends; what is still collected after it was put there outside of it.
"""

import contextlib
import gc
import os
import pathlib
import time

import torch
from patience import PATIENCE
from rank_side import raises, run_cases

import horovod.torch as hvd
from horovod.common import _lib, _wait
from horovod.torch import _gradients

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
def within_backward():
    real, _gradients._at_end_of_backward = _gradients._at_end_of_backward, lambda _: None
    try:
        yield
    finally:
        _gradients._at_end_of_backward = real


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


def ready(cores, prefix=""):
    """A model and an optimizer that has seen how many cores there are."""
    model = make_model()
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
    assert SIZE == 1 or (batch.count == 6 and batch.started == 0), (batch.count, batch.started)
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
        assert batch.count == batch.started == 0
        assert not _wait.collections
        check_equal(model)
        optimizer.zero_grad()


def case_a_rank_may_wait_for_another_that_has_made_its_step():
    """By means of its own, of which the library knows nothing."""
    stepped = pathlib.Path(os.environ["HVD_TEST_REPORTS"]) / "rank-0-has-stepped"
    model, optimizer = ready(1)
    backward(model)
    if RANK != 0:
        deadline = time.monotonic() + PATIENCE
        while not stepped.exists():
            assert time.monotonic() < deadline, "rank 0's step waits for gradients that this rank has made"
            time.sleep(0.01)
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


if __name__ == "__main__":
    run_cases(dict(globals()), hvd.barrier)
    hvd.shutdown()
