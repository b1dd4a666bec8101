"""Where tensors are: in a SharedBuffer, in the heap's memory that is kept for them, and with a default device, as
torch.set_default_device gives one. Runs as a rank (test_multi.py), on any number of ranks."""

import resource

import torch
from rank_side import is_torch, raises, run_cases

import horovod.torch as hvd
from horovod.torch import _heap

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
SHAPES = [(3, 5), (0, 2), (), (70_001,)]
RANKS_SUM = sum(range(1, SIZE + 1))


def case_tensors_are_zeroed_and_apart():
    types = [torch.float32, torch.bfloat16, torch.int64, torch.float64, torch.uint8, torch.bool]
    like = [torch.ones(7, dtype=dtype) for dtype in types]
    buffer = hvd.SharedBuffer(like)
    for tensor, wanted in zip(buffer.tensors, like):
        assert tensor.dtype == wanted.dtype and torch.equal(tensor, torch.zeros_like(wanted))
    for number, tensor in enumerate(buffer.tensors):
        tensor.fill_(number)
    assert all(torch.equal(t, torch.full((7,), n, dtype=t.dtype)) for n, t in enumerate(buffer.tensors))
    assert all(t.data_ptr() % 64 == 0 for t in buffer.tensors)
    buffer.close()
    buffer.close()
    hvd.SharedBuffer([]).close()


def case_operations_are_as_elsewhere():
    buffer = hvd.SharedBuffer([torch.empty(shape) for shape in SHAPES])
    for tensor, shape in zip(buffer.tensors, SHAPES):
        assert tensor.shape == shape
        for _ in range(3):
            tensor.fill_(RANK + 1)
            assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
            assert torch.equal(tensor, torch.full(shape, float(RANKS_SUM)))
    for tensor in buffer.tensors:
        tensor.fill_(RANK + 1)
    hvd.grouped_allreduce_(buffer.tensors, op=hvd.Average)
    assert all(torch.allclose(t, torch.full(t.shape, RANKS_SUM / SIZE)) for t in buffer.tensors)
    out = hvd.allreduce(buffer.tensors[0], op=hvd.Max)
    assert out.data_ptr() != buffer.tensors[0].data_ptr()
    assert hvd.allgather(buffer.tensors[0]).shape == (3 * SIZE, 5)
    assert hvd.broadcast_(buffer.tensors[0].fill_(RANK), 0).sum() == 0
    buffer.close()


def case_gradients_live_there():
    """They are reduced where backward adds to them, and the same as gradients elsewhere."""

    def trained(is_shared):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(40, 300), torch.nn.Tanh(), torch.nn.Linear(300, 5))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
        buffer = hvd.SharedBuffer(list(model.parameters()))
        if is_shared:
            for p, gradient in zip(model.parameters(), buffer.tensors):
                p.grad = gradient
        for step in range(4):
            optimizer.zero_grad(set_to_none=not is_shared)
            model(torch.full((2, 40), 0.01 * (RANK + step))).square().sum().backward()
            optimizer.step()
        assert not is_shared or all(p.grad is gradient for p, gradient in zip(model.parameters(), buffer.tensors))
        values = torch.cat([p.detach().flatten() for p in model.parameters()])
        optimizer.zero_grad(set_to_none=True)
        buffer.close()
        return values

    shared = trained(True)
    assert torch.equal(shared, trained(False))
    assert torch.equal(hvd.broadcast(shared, 0), shared)


def case_ranks_that_want_different_sizes():
    if SIZE > 1:
        said = raises(hvd.HorovodInternalError, hvd.SharedBuffer, [torch.empty(100_000 * (RANK + 1))])
        assert "Mismatched BUFFER ADD" in said, said
    raises(ValueError, hvd.SharedBuffer, [torch.ones(1).to(torch.float8_e5m2)] if is_torch(2, 1) else [torch.ones(1).to_sparse()])


def case_complex_numbers():
    numbers = torch.complex(torch.arange(4.0) + RANK, torch.ones(4))
    buffer = hvd.SharedBuffer([numbers])
    buffer.tensors[0].copy_(numbers)
    hvd.allreduce_(buffer.tensors[0], op=hvd.Sum)
    assert torch.equal(buffer.tensors[0], torch.complex(torch.arange(4.0) * SIZE + sum(range(SIZE)), torch.full((4,), float(SIZE))))
    buffer.close()


def case_operations_with_a_default_device():
    """New tensors have no memory that anyone could use, as those on a GPU have none for the host's code."""
    with torch.device("meta"):
        assert hvd.broadcast_object({"of": RANK}, 0) == {"of": 0}
        assert hvd.allgather_object(RANK) == list(range(SIZE))
        for gather in (hvd.allgather, lambda x: hvd.grouped_allgather([x])[0]):
            x = torch.ones(RANK + 1, 2, device="cpu", requires_grad=True)
            gathered = gather(x)
            gathered.sum().backward()
            assert gathered.sum().item() == SIZE * (SIZE + 1) and x.grad.tolist() == [[1.0, 1.0]] * (RANK + 1)
        got, counts = hvd.alltoall(torch.full((SIZE,), RANK, device="cpu"), splits=[1] * SIZE)
        assert got.tolist() == list(range(SIZE)) and counts.tolist() == [1] * SIZE
        total = hvd.sparse_allreduce_async(torch.eye(3, device="cpu").to_sparse(), name="sparse", op=hvd.Sum)()
        assert total.to_dense().diagonal().tolist() == [SIZE] * 3
        buffer = hvd.SharedBuffer([torch.ones(2, device="cpu"), torch.ones(0, device="cpu")])
        assert all(tensor.is_cpu for tensor in buffer.tensors)
        buffer.close()


def case_training_with_a_default_device():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), hvd.SyncBatchNorm(3), torch.nn.Linear(3, 1))
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    x = torch.ones(2, 2) * RANK
    with torch.device("meta"):
        plain = torch.optim.Adam(model.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), groups=2)
        state = hvd.elastic.TorchState(model, optimizer, epoch=RANK)
        state.sync()
        hvd.broadcast_optimizer_state(optimizer, 0)
        for _ in range(2):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, 0)
        assert isinstance(optimizer.step(lambda: 1.0), float)
        other = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=0.1), embedding.named_parameters())
        for ranks in (SIZE, 1):
            other.zero_grad()
            if ranks > RANK:
                embedding(torch.tensor([1], device="cpu")).sum().backward()
            other.step()
    assert state.epoch == 0 and all(p.is_cpu for p in model.parameters())


def case_it_outlives_the_job():
    kept = hvd.SharedBuffer([torch.empty(50_000)])
    closed = hvd.SharedBuffer([torch.empty(10)])
    hvd.allreduce_(kept.tensors[0].fill_(2.0), op=hvd.Max)
    hvd.barrier()  # a rank that leaves ends the others' operations
    hvd.shutdown()
    assert torch.equal(kept.tensors[0], torch.full((50_000,), 2.0))
    raises(ValueError, hvd.SharedBuffer, [torch.empty(10)])
    closed.close()
    hvd.init()
    assert torch.equal(hvd.allreduce_(kept.tensors[0], op=hvd.Sum), torch.full((50_000,), 2.0 * SIZE))
    kept.close()


def case_gradients_that_are_made_anew_cost_no_page_faults():
    weights = [torch.nn.Parameter(torch.zeros(count)) for count in (*[1 << 19] * 7, 5 << 20)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=0.0))
    faults = []
    for _ in range(10):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        optimizer.zero_grad(set_to_none=True)
        sum((weight * weight).sum() for weight in weights).backward()
        optimizer.step()
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    pages = sum(4 * weight.numel() for weight in weights) // resource.getpagesize()
    # The least: what else the process does in a step may have some. One that is alone reduces nothing.
    assert SIZE == 1 or _heap.is_set_by_user() or min(faults) < pages // 8, f"{pages} pages, {faults}"


if __name__ == "__main__":
    run_cases(dict(globals()), hvd.barrier)
    hvd.shutdown()
