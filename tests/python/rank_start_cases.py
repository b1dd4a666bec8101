"""When DistributedOptimizer starts what its hooks have collected; runs as a rank (test_multi.py), on any number of ranks.

How many cores the ranks have is told by the cases, so that they do the same on every machine.
"""

import contextlib
import gc
import os

import torch
from rank_side import raises, run_cases

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
    """A model and an optimizer that has seen how many cores there are, with gradients that are collected anew."""
    model = make_model()
    optimizer = wrapped(model, prefix)
    with cores_of_the_host(cores):
        backward(model)
        optimizer.step()
    optimizer.zero_grad()
    backward(model)
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
    """Where there may be a core for it. What was there before goes with it; what is left starts when it is wanted."""
    for cores in (0, 2 * SIZE):  # 0: on several hosts
        model, optimizer = ready(cores)
        batch = optimizer._hvd_reducer.common.batch
        assert SIZE == 1 or (batch.count == 6 and 0 < batch.started < 6), (batch.count, batch.started)
        optimizer.step()
        assert batch.count == batch.started == 0
        check_equal(model)


def case_without_cores_to_spare_they_start_when_wanted():
    model, optimizer = ready(2 * SIZE - 1)
    batch = optimizer._hvd_reducer.common.batch
    assert SIZE == 1 or (batch.count == 6 and batch.started == 0), (batch.count, batch.started)
    optimizer.step()
    assert batch.count == batch.started == 0
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
        model, optimizer = ready(1)
        if RANK == 0:
            optimizer.step()
        call("beside the step")
        if RANK != 0:
            optimizer.step()
        check_equal(model)


def case_ranks_may_step_two_optimizers_in_either_order():
    (first, one), (second, other) = ready(1, "first."), ready(1, "second.")
    for optimizer in (one, other) if RANK == 0 else (other, one):
        optimizer.step()
    assert not _wait.collections
    check_equal(first)
    check_equal(second)


def case_what_nobody_wants_any_more_is_not_started():
    model, optimizer = ready(1)
    del model, optimizer
    gc.collect()
    assert not _wait.collections
    hvd.barrier()


def case_the_step_tells_that_a_start_failed():
    model, optimizer = ready(1)
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
