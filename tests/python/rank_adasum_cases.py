"""The Adasum cases; runs as a rank (test_multi.py), on any number of ranks of one node."""

import copy

import torch
import torch.nn.functional as F
from rank_side import raises, run_cases

import horovod.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
FLOATS = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-6, torch.float64: 1e-12}


def pair(a, b):
    both, of_a, of_b = (a * b).sum(), (a * a).sum(), (b * b).sum()
    return (1 - both / (2 * of_a) if of_a else 1.0) * a + (1 - both / (2 * of_b) if of_b else 1.0) * b


def tree(vectors):
    """The definition, in float64."""
    if len(vectors) == 1:
        return vectors[0].double()
    first = 1
    while 2 * first < len(vectors):
        first *= 2
    return pair(tree(vectors[:first]), tree(vectors[first:]))


def of_rank(rank, seed, shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(100 * seed + rank)
    return torch.randn(shape, generator=generator, dtype=torch.float64).add_(0.5).to(dtype)


def expected(seed, shape, dtype=torch.float32):
    return tree([of_rank(rank, seed, shape, dtype) for rank in range(SIZE)])


def check(result, seed, shape, dtype=torch.float32):
    want = expected(seed, shape, dtype)
    assert result.dtype == dtype and result.shape == want.shape
    torch.testing.assert_close(result.double(), want, rtol=0, atol=FLOATS[dtype] * want.abs().max().item())
    rows = hvd.allgather(result.reshape(1, -1).contiguous().view(torch.uint8))
    assert all(torch.equal(row, rows[0]) for row in rows), "the same bits on every rank"


def case_adasum_of_every_type_and_size():
    for dtype in FLOATS:
        for seed, shape in enumerate([(1,), (7,), (3, 5), (1024,), (100_003,)]):
            check(hvd.allreduce(of_rank(RANK, seed, shape, dtype), op=hvd.Adasum), seed, shape, dtype)
    assert hvd.allreduce(torch.ones(0), op=hvd.Adasum).shape == (0,)
    tensor = of_rank(RANK, 1, (4,))
    assert hvd.allreduce_(tensor, op=hvd.Adasum) is tensor
    check(tensor, 1, (4,))


def case_adasum_of_a_group_is_of_each_tensor():
    shapes = [(5,), (2, 3), (40_000,)]
    results = hvd.grouped_allreduce([of_rank(RANK, i, shape) for i, shape in enumerate(shapes)], op=hvd.Adasum)
    for i, shape in enumerate(shapes):
        check(results[i], i, shape)


def case_adasum_has_a_gradient():
    tensor = torch.ones(3, requires_grad=True)
    hvd.allreduce(tensor, op=hvd.Adasum).sum().backward()
    torch.testing.assert_close(tensor.grad, torch.ones(3))  # of equal gradients it is their average


def make_model():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def batch(rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(4, 6, generator=generator)
    return x, (x[:, :3] > 0).float().argmax(1)


def train_step(model, optimizer, rank, step):
    x, y = batch(rank, step)
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
}


def case_an_optimizer_keeps_the_adasum_of_all_changes():
    """Against all ranks' models, stepped here one after the other."""
    for make in OPTIMIZERS.values():
        model = make_model()
        optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), op=hvd.Adasum)
        others = [make_model() for _ in range(SIZE)]
        plain = [make(other.parameters()) for other in others]
        for step in range(5):
            train_step(model, optimizer, RANK, step)
            starts = [p.detach().clone() for p in others[0].parameters()]
            for rank in range(SIZE):
                train_step(others[rank], plain[rank], rank, step)
            for i, start in enumerate(starts):
                changed = [list(other.parameters())[i] for other in others]
                combined = start + tree([p.detach() - start for p in changed]).to(start.dtype)
                for p in changed:
                    p.data.copy_(combined)
        for p, other in zip(model.parameters(), others[0].parameters()):
            torch.testing.assert_close(p, other, rtol=1e-4, atol=1e-5)
        flat = torch.cat([p.detach().flatten() for p in model.parameters()])
        rows = hvd.allgather(flat.unsqueeze(0))
        assert all(torch.equal(row, rows[0]) for row in rows)


def case_an_adasum_optimizer_is_one_of_its_class():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum, backward_passes_per_step=2, compression=hvd.Compression.bf16
    )
    assert isinstance(optimizer, torch.optim.SGD)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    x, y = batch(RANK, 0)
    for _ in range(2):
        F.cross_entropy(model(x), y).backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step(lambda: 3.0)
    scheduler.step()
    optimizer.zero_grad(set_to_none=True)
    twin = copy.deepcopy(optimizer)
    assert isinstance(twin, torch.optim.SGD) and twin.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    optimizer.load_state_dict(optimizer.state_dict())
    raises(ValueError, hvd.DistributedOptimizer, optimizer)
    if SIZE > 1:
        raises(AssertionError, lambda: optimizer.skip_synchronize().__enter__())
    else:
        with optimizer.skip_synchronize():
            optimizer.step()


def case_a_rank_without_gradients_brings_no_change():
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), op=hvd.Adasum)
    if RANK == 0:
        weight.sum().backward()
    optimizer.step()
    assert weight.tolist() == [-1.0] * 4


def case_a_rank_whose_scaled_gradients_overflow_brings_no_change():
    if not hasattr(torch.amp, "GradScaler"):
        return
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), op=hvd.Adasum)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for unscales_before in (False, True):
        for overflowing in range(SIZE):
            weight.data.zero_()
            optimizer.zero_grad()
            scaler.scale(weight.sum() * (float("inf") if overflowing == RANK else 1.0)).backward()
            if unscales_before:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            assert weight.tolist() == [-1.0 if SIZE > 1 else 0.0] * 4


if __name__ == "__main__":
    run_cases(dict(globals()), hvd.barrier)
    hvd.shutdown()
