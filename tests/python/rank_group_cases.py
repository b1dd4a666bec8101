"""The cases of groups, reducescatter, alltoall and join; runs as a rank (test_multi.py), on any number of ranks."""

import torch
from rank_side import is_torch, raises, run_cases

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
TYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
         torch.float16, torch.bfloat16, torch.float32, torch.float64]  # fmt: skip


def mine(rank=RANK, shape=(5, 3), dtype=torch.float32):
    """Small whole numbers, different on each rank."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) % 5) + rank + 1).reshape(shape).to(dtype)


def total(shape=(5, 3), dtype=torch.float32):
    return torch.stack([mine(rank, shape, dtype) for rank in range(SIZE)]).sum(0).to(dtype)


def rows_of(tensor, rank=RANK):
    """This rank's part: the lowest ranks have one row more."""
    sizes = [tensor.shape[0] // SIZE + (r < tensor.shape[0] % SIZE) for r in range(SIZE)]
    return tensor.split(sizes)[rank]


# ---- groups ----


def case_grouped_allreduce():
    tensors = [mine(shape=(n + 1,)) for n in range(20)] + [mine(dtype=torch.float64), mine(dtype=torch.int32)]
    reduced = hvd.grouped_allreduce(tensors, op=hvd.Sum, name="group")
    assert isinstance(reduced, list)
    for n, result in enumerate(reduced[:20]):
        assert torch.equal(result, total((n + 1,)))
    assert torch.equal(reduced[20], total(dtype=torch.float64)) and torch.equal(reduced[21], total(dtype=torch.int32))
    assert torch.equal(tensors[0], mine(shape=(1,))), "the input changed"
    averaged = hvd.grouped_allreduce([mine(), mine()], prescale_factor=2.0)
    assert all(torch.allclose(result, total() * 2 / SIZE) for result in averaged)
    halves = hvd.grouped_allreduce((mine(),), op=hvd.Sum, compression=hvd.Compression.fp16)
    assert halves[0].dtype == torch.float32 and torch.equal(halves[0], total())


def case_grouped_allreduce_in_place_and_async():
    tensors = [mine(), mine(shape=(2,))]
    assert hvd.grouped_allreduce_(tensors, op=hvd.Sum)[0] is tensors[0]
    assert torch.equal(tensors[0], total()) and torch.equal(tensors[1], total((2,)))
    handle = hvd.grouped_allreduce_async([mine(), mine()], op=hvd.Sum, name="later")
    other = hvd.grouped_allreduce_async_([mine()], op=hvd.Max, name="other")
    assert isinstance(handle, int)
    assert torch.equal(hvd.synchronize(other)[0], mine(SIZE - 1))
    assert torch.equal(hvd.synchronize(handle)[1], total())
    assert hvd.synchronize(handle) is None
    raises(ValueError, hvd.grouped_allreduce_, [mine(), mine().t()])


def case_a_group_comes_again_with_other_tensors():
    shapes = [(3,), (2, 4), ()]
    for step in range(3):  # new memory in each, and one of them in flight while the next is started
        first, second = ([mine(shape=shape) for shape in shapes] for _ in range(2))
        handles = [hvd.grouped_allreduce_async_(group, op=hvd.Sum, name="again") for group in (first,)]
        handles.append(hvd.grouped_allreduce_async(second, op=hvd.Sum, name="beside"))
        given = list(first)
        first.clear()  # the caller's list is the caller's
        for handle, kept in zip(handles, (given, None)):
            hvd.poll(handle)
            results = hvd.synchronize(handle)
            assert [torch.equal(r, total(shape)) for r, shape in zip(results, shapes)] == [True] * 3, step
            assert kept is None or all(a is b for a, b in zip(results, kept))
            assert hvd.synchronize(handle) is None
    # The same names with other shapes, types and factors, and with memory that must be copied.
    assert torch.equal(hvd.grouped_allreduce_([mine(shape=(7,)), mine()], op=hvd.Sum, name="again")[0], total((7,)))
    ints = hvd.grouped_allreduce_([mine(dtype=torch.int64)] * 1, op=hvd.Max, name="again")
    assert torch.equal(ints[0], mine(SIZE - 1, dtype=torch.int64))
    turned = hvd.grouped_allreduce([mine().t(), mine()], op=hvd.Sum, name="turned")
    assert torch.equal(turned[0], total().t()) and torch.equal(turned[1], total())
    negative = torch._neg_view(mine())
    assert torch.equal(hvd.grouped_allreduce([negative, mine()], op=hvd.Sum, name="turned")[0], -total())
    learned = torch.nn.Parameter(mine())
    with torch.no_grad():
        assert torch.equal(hvd.grouped_allreduce_([learned], op=hvd.Sum, name="learned")[0], total())


def case_factors_are_numbers_or_tensors_that_change():
    factor = torch.tensor(1.0, dtype=torch.float64)
    for value in (1.0, 10.0, 3.0):
        factor.fill_(value)
        for scaled in (
            hvd.grouped_allreduce([mine()], op=hvd.Sum, name="scaled", prescale_factor=factor)[0],
            hvd.allreduce(mine(), op=hvd.Sum, name="scaled alone", prescale_factor=factor),
            hvd.synchronize(hvd.allreduce_async_(mine(), op=hvd.Sum, name="scaled later", postscale_factor=factor)),
            hvd.grouped_allreduce([mine()], op=hvd.Sum, name="numpy", postscale_factor=factor.numpy())[0],
        ):
            assert torch.allclose(scaled, total() * value), value


def case_more_groups_than_are_kept():
    for step in range(3):
        for number in range(0, 2000, 7 if step else 1):
            reduced = hvd.grouped_allreduce_([torch.ones(2) * step, torch.ones(1)], op=hvd.Sum, name=f"kept {number}")
            assert reduced[0].tolist() == [step * SIZE] * 2


def case_groups_that_are_none():
    for wrong in ([], (tensor for tensor in ()), torch.ones(2), [torch.ones(2), 3], {"a": torch.ones(2)}, 3):
        raises(ValueError, hvd.grouped_allreduce, wrong)
        raises(ValueError, hvd.grouped_allgather, wrong)
        raises(ValueError, hvd.grouped_reducescatter, wrong)
    assert torch.equal(hvd.grouped_allreduce([torch.ones(1)])[0], torch.ones(1))


def case_groups_from_generators():
    """Horovod goes through what it is given once, such as model.parameters()."""
    model = torch.nn.Linear(2 * SIZE, 2 * SIZE)
    for operation, start in [
        (hvd.grouped_allreduce, hvd.grouped_allreduce_async),
        (hvd.grouped_allreduce_, hvd.grouped_allreduce_async_),
        (hvd.grouped_allgather, hvd.grouped_allgather_async),
        (hvd.grouped_reducescatter, hvd.grouped_reducescatter_async),
    ]:
        for given in (model.parameters, dict(model.named_parameters()).values):
            known = [tensor.detach().clone() for tensor in operation(list(given()))]
            for results in (operation(given()), hvd.synchronize(start(given()))):
                assert [one.shape for one in results] == [one.shape for one in known], operation
                assert all(torch.equal(one.detach(), other) for one, other in zip(results, known)), operation


def case_a_group_fails_as_one():
    if SIZE > 1:
        message = raises(
            HorovodInternalError, hvd.grouped_allreduce, [torch.ones(2), torch.ones(2 + min(RANK, 1))], name="g"
        )
        assert "[2]" in message and "[3]" in message and "rank 0" in message and "rank 1" in message
        for name in ("h", None):
            for least in (1, 2):
                raises(HorovodInternalError, hvd.grouped_allreduce, [torch.ones(1)] * (least + min(RANK, 1)), name=name)
        assert torch.equal(hvd.allreduce(torch.ones(2)), torch.ones(2))  # ranks count operations without a name alike still
    assert torch.equal(hvd.grouped_allreduce([torch.ones(2)], name="g")[0], torch.ones(2))


def case_grouped_allgather():
    tensors = [mine(shape=(RANK, 2)), mine(shape=(3,), dtype=torch.int8), torch.tensor([[RANK == 0]])]
    gathered = hvd.grouped_allgather(tensors, name="gather")
    assert torch.equal(gathered[0], torch.cat([mine(r, (r, 2)) for r in range(SIZE)]))
    assert torch.equal(gathered[1], torch.cat([mine(r, (3,), torch.int8) for r in range(SIZE)]))
    assert gathered[2].tolist() == [[r == 0] for r in range(SIZE)]
    handle = hvd.grouped_allgather_async([torch.ones(1), torch.empty(0, 4)])
    assert [tuple(t.shape) for t in hvd.synchronize(handle)] == [(SIZE,), (0, 4)]


def case_grouped_reducescatter():
    tensors = [mine(shape=(n, 2)) for n in range(6)]
    for n, result in enumerate(hvd.grouped_reducescatter(tensors, op=hvd.Sum, name="scatter")):
        assert torch.equal(result, rows_of(total((n, 2))))
    handle = hvd.grouped_reducescatter_async([mine(), mine(dtype=torch.float64)])
    assert torch.allclose(hvd.synchronize(handle)[1], rows_of(total(dtype=torch.float64)) / SIZE)


def case_gradients_of_groups():
    x, y = mine().requires_grad_(), mine(shape=(4,)).requires_grad_()
    a, b = hvd.grouped_allreduce([x, y], op=hvd.Sum)
    (a.sum() + 2 * b.sum()).backward()
    assert torch.equal(x.grad, torch.full((5, 3), float(SIZE))) and torch.equal(y.grad, torch.full((4,), 2.0 * SIZE))

    x, y = torch.ones(RANK + 1, 2, requires_grad=True), torch.ones(2, requires_grad=True)
    a, b = hvd.grouped_allgather([x, y])
    weights = torch.arange(a.shape[0], dtype=torch.float32).unsqueeze(1)
    ((a * weights).sum() + b.sum()).backward()
    first = sum(r + 1 for r in range(RANK))
    assert torch.equal(x.grad, weights[first : first + RANK + 1].expand(-1, 2)) and torch.equal(y.grad, torch.ones(2))

    for op, factor in [(hvd.Sum, SIZE), (hvd.Average, 1)]:
        x, y = mine().requires_grad_(), mine(shape=(SIZE, 1)).requires_grad_()
        a, b = hvd.grouped_reducescatter([x, y], op=op)
        (a.sum() + b.sum() * (RANK + 1)).backward()
        assert torch.equal(x.grad, torch.full((5, 3), float(factor)))
        assert torch.equal(y.grad[:, 0], torch.arange(1, SIZE + 1) * float(factor))


# ---- reducescatter ----


def case_reducescatter_every_type():
    for dtype in TYPES:
        tensor = mine(dtype=dtype)
        result = hvd.reducescatter(tensor, op=hvd.Sum, name=f"scatter.{dtype}")
        assert result.dtype == dtype and torch.equal(result, rows_of(total(dtype=dtype)))
        assert torch.equal(tensor, mine(dtype=dtype)), "the input changed"


def case_reducescatter_shapes_and_factors():
    for shape in [(0, 2), (1,), (SIZE, 2, 2), (100_003,)]:
        assert torch.equal(hvd.reducescatter(mine(shape=shape), op=hvd.Sum), rows_of(total(shape)))
    assert torch.allclose(hvd.reducescatter(mine()), rows_of(total()) / SIZE)
    scaled = hvd.reducescatter(mine(), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert torch.equal(scaled, rows_of(total()) * 2)
    factor = torch.tensor(2.0)
    for _ in range(2):
        scaled = hvd.reducescatter(mine(), op=hvd.Sum, prescale_factor=factor)
        assert torch.equal(scaled, rows_of(total()) * float(factor))
        scaled = hvd.grouped_reducescatter([mine()], op=hvd.Sum, postscale_factor=factor)[0]
        assert torch.equal(scaled, rows_of(total()) * float(factor))
        factor.mul_(2.0)
    assert torch.equal(hvd.reducescatter(mine(shape=(3, 5)).t(), op=hvd.Sum), rows_of(total((3, 5)).t()))
    small = hvd.reducescatter(mine(), compression=hvd.Compression.fp16, op=hvd.Sum)
    assert small.dtype == torch.float32 and torch.equal(small, rows_of(total()))
    handle = hvd.reducescatter_async(mine(), op=hvd.Sum, name="async")
    assert torch.equal(hvd.synchronize(handle), rows_of(total()))


def case_reducescatter_wrong_arguments():
    raises(NotImplementedError, hvd.reducescatter, mine(), op=hvd.Max)
    raises(ValueError, hvd.reducescatter, torch.ones(2).to(torch.float8_e5m2) if is_torch(2, 1) else torch.ones(2).to_mkldnn())
    for operation in (hvd.reducescatter, hvd.alltoall, hvd.allgather):
        for value in (torch.tensor(1.0), torch.tensor(1 + 2j)):
            assert "scalar" in raises(HorovodInternalError, operation, value)
    if is_torch(2, 1):
        for operation in (hvd.alltoall, hvd.allgather, lambda value: hvd.grouped_allgather([value])):
            assert "scalar" in raises(HorovodInternalError, operation, torch.tensor(1.0).to(torch.float8_e5m2))
    if SIZE > 1:
        message = raises(HorovodInternalError, hvd.reducescatter, mine(shape=(2 + min(RANK, 1),)), name="shapes")
        assert "[2]" in message and "[3]" in message
    assert torch.equal(hvd.reducescatter(torch.ones(SIZE)), torch.ones(1))


def case_complex_numbers():
    """They travel as pairs of real numbers, also from a view that conjugates."""

    def of(rank, shape=(4, 3), dtype=torch.complex64):
        return torch.complex(mine(rank, shape), -2.0 * mine(rank, shape)).to(dtype)

    for dtype in (torch.complex64, torch.complex128):
        everything = torch.stack([of(rank, dtype=dtype) for rank in range(SIZE)])
        expected = everything.sum(0)
        for make in (lambda: of(RANK, dtype=dtype), lambda: of(RANK, dtype=dtype).conj().resolve_conj().conj()):
            for _ in range(2):  # also the second time, when an operation is known
                assert torch.equal(hvd.allreduce(make(), op=hvd.Sum, name="z"), expected)
                assert torch.equal(hvd.allreduce(make(), prescale_factor=2.0), expected * 2 / SIZE)
                assert torch.equal(hvd.allreduce_(own := make(), op=hvd.Sum), expected) and torch.equal(own, expected)
                assert torch.equal(hvd.synchronize(hvd.allreduce_async(make(), op=hvd.Sum)), expected)
                assert torch.equal(hvd.synchronize(hvd.allreduce_async_(make(), op=hvd.Sum)), expected)
                assert torch.equal(hvd.grouped_allreduce([make(), mine()], op=hvd.Sum)[0], expected)
                assert torch.equal(hvd.grouped_allreduce_([own := make()], op=hvd.Sum)[0], expected)
                assert torch.equal(hvd.broadcast(make(), SIZE - 1), of(SIZE - 1, dtype=dtype))
                assert torch.equal(hvd.broadcast_(make(), SIZE - 1), of(SIZE - 1, dtype=dtype))
                assert torch.equal(hvd.allgather(make()), everything.flatten(0, 1))
                assert torch.equal(hvd.grouped_allgather([make(), mine()])[0], everything.flatten(0, 1))
                assert torch.equal(hvd.reducescatter(make(), op=hvd.Sum), rows_of(expected))
                assert torch.equal(hvd.grouped_reducescatter([make()], op=hvd.Sum)[0], rows_of(expected))
        # One that looks in memory like what another has on its way is another operation.
        assert torch.equal(hvd.allreduce(of(RANK, (4, 3, 2), dtype), op=hvd.Sum, name="z"),
                           torch.stack([of(rank, (4, 3, 2), dtype) for rank in range(SIZE)]).sum(0))  # fmt: skip
    rows = torch.cat([of(RANK, (1, 3)) + rank for rank in range(SIZE)])
    assert torch.equal(hvd.alltoall(rows), torch.cat([of(rank, (1, 3)) + RANK for rank in range(SIZE)]))
    received, counts = hvd.alltoall(rows[:, 0].contiguous(), splits=[1] * SIZE)
    assert received.shape == (SIZE,) and counts.tolist() == [1] * SIZE


def case_gradients_of_complex_numbers():
    for reduce, factor in ((lambda z: hvd.allreduce(z, op=hvd.Sum), SIZE), (lambda z: hvd.allreduce(z), 1)):
        z = torch.complex(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])).requires_grad_()
        (reduce(z) * torch.tensor(1j)).imag.sum().backward()
        assert torch.equal(z.grad, torch.full((2,), complex(factor, 0))), z.grad
    z = torch.ones(2, dtype=torch.complex64, requires_grad=True)
    hvd.allgather(z.conj()).real.sum().backward()
    assert torch.equal(z.grad, torch.ones(2, dtype=torch.complex64))


def case_types_without_numbers_are_moved():
    for name in ("float8_e4m3fn", "uint32", "uint64"):
        dtype = getattr(torch, name, None)
        if dtype is None:
            continue

        def of(rank, dtype=dtype):
            return (torch.arange(6).reshape(2, 3) + rank).to(dtype)

        def same(tensor, expected):
            assert tensor.dtype == expected.dtype and tensor.tolist() == expected.tolist()

        same(hvd.broadcast(of(RANK), SIZE - 1), of(SIZE - 1))
        same(hvd.broadcast_(of(RANK), 0), of(0))
        same(hvd.allgather(of(RANK)), torch.cat([of(rank).view(torch.uint8) for rank in range(SIZE)]).view(dtype))
        raises(ValueError, hvd.allreduce, of(RANK))
        hvd.broadcast_parameters({"weight": (weight := of(RANK))}, 0)
        same(weight, of(0))


def case_a_model_with_complex_numbers():
    """Its parameters, a buffer of rotations, its gradients and its optimizer's state."""
    model = torch.nn.Module()
    model.register_buffer("rotations", torch.polar(torch.ones(3), torch.arange(3.0) + RANK))
    model.weight = torch.nn.Parameter(torch.full((3,), complex(1 + RANK, RANK)))
    hvd.broadcast_parameters(model.state_dict(), 0)
    assert torch.equal(model.rotations, torch.polar(torch.ones(3), torch.arange(3.0)))
    assert torch.equal(model.weight.detach(), torch.ones(3, dtype=torch.complex64))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters())
    for step in range(3):
        optimizer.zero_grad()
        # The gradient is a conjugated view.
        (model.weight.conj() * torch.full((3,), complex(RANK, 1))).real.sum().backward()
        expected = complex(sum(range(SIZE)) / SIZE, 1)
        assert torch.allclose(model.weight.grad, torch.full((3,), expected)), (step, model.weight.grad)
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert optimizer.state[model.weight]["momentum_buffer"].is_complex()
    assert all(torch.equal(other, model.weight) for other in hvd.allgather(model.weight.detach().unsqueeze(0)))


def case_gradient_of_reducescatter():
    for op, factor in [(hvd.Sum, SIZE), (hvd.Average, 1)]:
        x = mine().requires_grad_()
        y = hvd.reducescatter(x, op=op, prescale_factor=2.0, postscale_factor=3.0)
        y.backward(torch.full_like(y, RANK + 1.0))
        parts = [torch.full_like(rows_of(mine(), r), (r + 1.0) * factor * 6) for r in range(SIZE)]
        assert torch.equal(x.grad, torch.cat(parts))


# ---- alltoall ----


def case_alltoall_every_type():
    for dtype in TYPES + [torch.bool]:
        splits = torch.tensor([to + 1 for to in range(SIZE)], dtype=torch.int32)
        tensor = torch.cat([torch.full((to + 1, 2), RANK * SIZE + to) for to in range(SIZE)]).to(dtype)
        result, received = hvd.alltoall(tensor, splits=splits, name=f"alltoall.{dtype}")
        expected = torch.cat([torch.full((RANK + 1, 2), r * SIZE + RANK) for r in range(SIZE)]).to(dtype)
        assert result.dtype == dtype and torch.equal(result, expected)
        assert received.dtype == torch.int32 and received.tolist() == [RANK + 1] * SIZE


def case_alltoall_without_splits():
    result = hvd.alltoall(torch.arange(2 * SIZE) + 100 * RANK)
    assert result.tolist() == [100 * r + 2 * RANK + i for r in range(SIZE) for i in range(2)]
    own = hvd.alltoall(torch.full((RANK * SIZE,), float(RANK)))  # as many rows as it likes
    assert own.tolist() == [float(r) for r in range(SIZE) for _ in range(r)]
    assert hvd.alltoall(torch.empty(0, 7)).shape == (0, 7)
    rows, received = hvd.synchronize(hvd.alltoall_async(torch.ones(SIZE), name="later"))  # Horovod's gives both here
    assert torch.equal(rows, torch.ones(SIZE)) and received.tolist() == [1] * SIZE
    _, received = hvd.synchronize(hvd.alltoall_async(torch.empty(RANK * SIZE, 7)))
    assert received.dtype == torch.int32 and received.tolist() == list(range(SIZE))


def case_alltoall_uneven():
    splits = [RANK if to == 0 else 0 for to in range(SIZE)]  # all to rank 0; one row of each stays unsent
    result, received = hvd.alltoall(mine(shape=(RANK + 1, 3)), splits)
    if RANK == 0:
        assert torch.equal(result, torch.cat([mine(r, (r + 1, 3))[:r] for r in range(SIZE)]))
        assert received.tolist() == list(range(SIZE))
    else:
        assert result.shape == (0, 3) and received.tolist() == [0] * SIZE
    big = hvd.alltoall(torch.full((100_000 * SIZE,), float(RANK)))
    assert big[-1] == SIZE - 1 and big[0] == 0 and big.shape == (100_000 * SIZE,)


def case_alltoall_wrong_arguments():
    good = [1] * SIZE
    raises(ValueError, hvd.alltoall, torch.ones(SIZE), torch.tensor(good))  # int64
    raises(ValueError, hvd.alltoall, torch.ones(SIZE), torch.tensor([good], dtype=torch.int32))
    raises(ValueError, hvd.alltoall, torch.ones(SIZE), good + [0])
    raises(ValueError, hvd.alltoall, torch.ones(SIZE), [])
    assert "add up to" in raises(ValueError, hvd.alltoall, torch.ones(SIZE - 1), good)
    assert "-1" in raises(ValueError, hvd.alltoall, torch.ones(SIZE), [-1] + good[1:])
    if SIZE > 1:
        raises(ValueError, hvd.alltoall, torch.ones(SIZE + 1))
        message = raises(HorovodInternalError, hvd.alltoall, torch.ones(SIZE, 2 + min(RANK, 1)), name="columns")
        assert "rank 0" in message and "rank 1" in message
    assert torch.equal(hvd.alltoall(torch.ones(SIZE), good)[0], torch.ones(SIZE))


def case_gradient_of_alltoall():
    x = torch.ones(2 * SIZE, requires_grad=True)
    hvd.alltoall(x).backward(torch.full((2 * SIZE,), RANK + 1.0))
    assert x.grad.tolist() == [r + 1.0 for r in range(SIZE) for _ in range(2)]
    x = torch.ones(SIZE + 1, 2, requires_grad=True)  # the last row goes nowhere
    y, _ = hvd.alltoall(x, torch.ones(SIZE, dtype=torch.int32))
    y.sum().backward()
    assert torch.equal(x.grad, torch.cat([torch.ones(SIZE, 2), torch.zeros(1, 2)]))


# ---- join ----


def case_join():
    for round_number in range(2):
        for step in range(RANK + 1):
            brings = SIZE - step
            tensor = torch.full((10,), 3.0)
            assert torch.equal(hvd.allreduce(tensor, op=hvd.Sum, name=f"sum.{step}"), tensor * brings)
            average = hvd.allreduce(tensor, name=f"average.{step}")
            assert torch.allclose(average, tensor * brings / SIZE), "an average is over all ranks"
            assert hvd.grouped_allreduce([tensor, tensor], op=hvd.Sum, name=f"group.{step}")[1][0] == 3.0 * brings
            for count in (10, 5_000, 300_000):  # ranks that have joined scale what they reduce of it
                large = hvd.allreduce(torch.full((count,), 3.0), op=hvd.Sum, postscale_factor=0.5, name=f"scaled.{step}.{count}")
                assert torch.equal(large, torch.full((count,), 1.5 * brings))
                large = hvd.allreduce(torch.full((count,), 3.0), postscale_factor=4.0, name=f"scaled average.{step}.{count}")
                assert torch.equal(large, torch.full((count,), 12.0 * brings) / SIZE)
        assert hvd.join() == SIZE - 1
        assert torch.equal(hvd.allreduce(torch.ones(2), op=hvd.Sum, name=f"after.{round_number}"), torch.ones(2) * SIZE)


def case_join_and_what_cannot_go_on():
    if RANK > 0:
        for operation in (
            lambda: hvd.allgather(torch.ones(2), name="gather"),
            lambda: hvd.broadcast(torch.ones(2), 0, name="broadcast"),
            lambda: hvd.alltoall(torch.ones(SIZE), name="alltoall"),
            lambda: hvd.reducescatter(torch.ones(SIZE), name="scatter"),
        ):
            message = raises(HorovodInternalError, operation)
            assert "is not supported with Join at this time: rank 0 has joined" in message
    assert hvd.join() in range(SIZE)
    assert torch.equal(hvd.allgather(torch.ones(1)), torch.ones(SIZE))


def case_join_with_gradients_in_flight():
    handles = [hvd.allreduce_async(torch.ones(4), op=hvd.Sum, name=f"flight.{n}") for n in range(10 + RANK)]
    last = hvd.join(device=-1)
    assert 0 <= last < SIZE
    for n, handle in enumerate(handles):
        bring = SIZE if n < 10 else SIZE - (n - 9)
        assert torch.equal(hvd.synchronize(handle), torch.ones(4) * bring)


if __name__ == "__main__":
    run_cases(dict(globals()), hvd.barrier)
    hvd.shutdown()
