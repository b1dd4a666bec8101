"""The collective cases; runs as a rank (test_multi.py), on any number of ranks."""

import contextlib
import copy
import json
import multiprocessing
import pathlib
import sys
import tempfile
import time
import warnings

import numpy
import torch
from rank_side import is_torch, raises, run_cases

import horovod.torch as hvd
from horovod.common import _arrays, _objects
from horovod.common._lib import MAC_BYTES
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import _handles

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
NUMBERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def mine(dtype, rank=RANK, shape=(3, 5)):
    """Small whole numbers, different on each rank, exact in every type also when summed."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) % 7) + rank + 1).reshape(shape).to(dtype)


def all_of(dtype, shape=(3, 5)):
    return torch.stack([mine(dtype, rank, shape) for rank in range(SIZE)])


def case_identity():
    assert (hvd.local_rank(), hvd.local_size()) == (RANK, SIZE)
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert hvd.is_initialized()
    assert hvd.global_process_set.ranks == list(range(SIZE)) and hvd.global_process_set.included()
    hvd.init()  # does nothing


def case_allreduce_every_type_and_operator():
    for dtype in NUMBERS + FLOATS:
        stacked = all_of(dtype).to(torch.float64)
        expected = {hvd.Sum: stacked.sum(0), hvd.Min: stacked.amin(0), hvd.Max: stacked.amax(0)}
        if SIZE <= 2 or dtype not in (torch.uint8, torch.int8):
            expected[hvd.Product] = stacked.prod(0)
        for op, value in expected.items():
            tensor = mine(dtype)
            result = hvd.allreduce(tensor, op=op, name=f"{dtype}.{op}")
            assert result.dtype == dtype and result.shape == tensor.shape
            # 16-bit floats round products of four numbers
            torch.testing.assert_close(result.to(torch.float64), value, rtol=2e-2 if dtype in FLOATS[:2] else 0, atol=0)
            assert torch.equal(tensor, mine(dtype)), "the input changed"


def case_every_type_that_torch_has_travels():
    for dtype in [torch.uint16] if hasattr(torch, "uint16") else []:
        tensor = torch.tensor([RANK + 1, 40_000], dtype=dtype)
        total = hvd.allreduce(tensor, op=hvd.Sum)
        expected = [SIZE * (SIZE + 1) // 2, 40_000 * SIZE % 65_536]
        assert total.dtype == dtype and total.to(torch.int64).tolist() == expected
        gathered = hvd.allgather(tensor).to(torch.int64).tolist()
        assert gathered == [n for r in range(SIZE) for n in (r + 1, 40_000)]
        assert hvd.broadcast(tensor, SIZE - 1).to(torch.int64).tolist() == [SIZE, 40_000]


def case_allreduce_average():
    """The sum divided by the number of ranks, to the last bit: by every way that an allreduce goes."""
    for dtype in FLOATS:
        for count in (7, 3_000, 300_000):
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            total = all_of(dtype, (count,)).to(wide).sum(0)  # exact
            expected = (total / SIZE).to(dtype)
            tensor = mine(dtype, shape=(count,))
            assert torch.equal(hvd.allreduce(tensor), expected)
            assert all(torch.equal(one, expected) for one in hvd.grouped_allreduce([tensor, tensor]))
            handles = [hvd.allreduce_async(tensor, name=f"average {i}") for i in range(3)]
            assert all(torch.equal(hvd.synchronize(handle), expected) for handle in handles)
            rows = hvd.reducescatter(tensor)
            begins = [sum(count // SIZE + (rank < count % SIZE) for rank in range(RANK + more)) for more in (0, 1)]
            assert torch.equal(rows, expected[slice(*begins)])
    sums = torch.tensor([-3, 3]) if RANK == 0 else torch.tensor([0, 0])
    expected = torch.tensor([int(-3 / SIZE), int(3 / SIZE)])
    assert torch.equal(hvd.allreduce(sums), expected), "integers average with truncation toward zero"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(hvd.allreduce(mine(torch.int64), average=False), all_of(torch.int64).sum(0))


def case_allreduce_bool():
    flag = torch.tensor([RANK == 0, True, False])
    assert hvd.allreduce(flag, op=hvd.Max).tolist() == [True, True, False]
    assert hvd.allreduce(flag, op=hvd.Min).tolist() == [SIZE == 1, True, False]
    raises(ValueError, hvd.allreduce, flag)


def case_allreduce_shapes():
    for shape in [(), (1,), (0,), (0, 3), (2, 1, 3), (100_003,), (1 << 20,)]:
        result = hvd.allreduce(mine(torch.float32, shape=shape), op=hvd.Sum)
        assert result.shape == torch.Size(shape)
        assert torch.equal(result, all_of(torch.float32, shape).sum(0))


def case_allreduce_factors():
    result = hvd.allreduce(mine(torch.float32), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert torch.equal(result, all_of(torch.float32).sum(0) * 2)


def case_allreduce_compressed():
    result = hvd.allreduce(mine(torch.float32), compression=hvd.Compression.fp16, op=hvd.Sum)
    assert result.dtype == torch.float32 and torch.equal(result, all_of(torch.float32).sum(0))
    whole = hvd.allreduce(mine(torch.int32), compression=hvd.Compression.fp16, op=hvd.Sum)
    assert whole.dtype == torch.int32


def case_allreduce_in_place():
    tensor = mine(torch.float32)
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    assert torch.equal(tensor, all_of(torch.float32).sum(0))


def case_not_contiguous():
    tensor = mine(torch.float32).t()
    assert "contiguous" in raises(ValueError, hvd.allreduce_, tensor)
    assert "contiguous" in raises(ValueError, hvd.broadcast_, tensor, 0)
    assert torch.equal(hvd.allreduce(tensor, op=hvd.Sum), all_of(torch.float32).sum(0).t())
    assert torch.equal(hvd.allgather(tensor), torch.cat([mine(torch.float32, r).t() for r in range(SIZE)]))
    assert torch.equal(hvd.broadcast(tensor, SIZE - 1), mine(torch.float32, SIZE - 1).t())


def case_async_many():
    tensors = [mine(torch.float32, shape=(n + 1,)) for n in range(200)]
    handles = [hvd.allreduce_async(t, name=f"many.{n}", op=hvd.Sum) for n, t in enumerate(tensors)]
    assert all(isinstance(h, int) for h in handles) and len(set(handles)) == len(handles)
    order = reversed(list(enumerate(handles)))
    for n, handle in order:
        assert torch.equal(hvd.synchronize(handle), all_of(torch.float32, (n + 1,)).sum(0))
    assert hvd.synchronize(handles[0]) is None, "a handle is taken once"
    raises(ValueError, hvd.poll, handles[0])


def case_async_in_different_order():
    names = [f"order.{n}" for n in range(20)]
    tensors = {name: mine(torch.float32) * n for n, name in enumerate(names)}
    order = names[:: 1 - 2 * (RANK % 2)]
    handles = {name: hvd.allreduce_async_(tensors[name], name=name, op=hvd.Sum) for name in order}
    for n, name in enumerate(names):
        assert hvd.synchronize(handles[name]) is tensors[name]
        assert torch.equal(tensors[name], all_of(torch.float32).sum(0) * n)


def case_poll():
    handle = hvd.allreduce_async(torch.ones(4), name="poll")
    while not hvd.poll(handle):
        time.sleep(0.001)
    assert torch.equal(hvd.synchronize(handle), torch.ones(4))


def case_handle_keeps_tensor_alive():
    handle = hvd.allreduce_async(torch.full((100_000,), 2.0), name="alive", op=hvd.Sum)
    garbage = [torch.zeros(100_000) for _ in range(20)]
    assert torch.equal(hvd.synchronize(handle), torch.full((100_000,), 2.0 * SIZE)) and len(garbage) == 20


def case_allgather_every_type():
    for dtype in NUMBERS + FLOATS + [torch.bool]:
        result = hvd.allgather(mine(dtype), name=f"gather.{dtype}")
        assert result.dtype == dtype
        assert torch.equal(result, torch.cat([mine(dtype, rank) for rank in range(SIZE)]))


def case_allgather_uneven():
    result = hvd.allgather(mine(torch.int64, shape=(RANK, 4)))  # rank 0 has nothing
    assert torch.equal(result, torch.cat([mine(torch.int64, r, (r, 4)) for r in range(SIZE)]))
    assert hvd.allgather(torch.empty(0, 2)).shape == (0, 2)
    big = hvd.allgather(torch.full((RANK * 50_000 + 1,), float(RANK)))
    assert big.shape[0] == sum(r * 50_000 + 1 for r in range(SIZE)) and big[-1] == SIZE - 1


def case_broadcast_every_type_and_root():
    for root in range(SIZE):
        for dtype in NUMBERS + FLOATS + [torch.bool]:
            tensor = mine(dtype)
            assert torch.equal(hvd.broadcast(tensor, root), mine(dtype, root))
            assert torch.equal(tensor, mine(dtype)), "the input changed"
            assert hvd.broadcast_(tensor, root) is tensor and torch.equal(tensor, mine(dtype, root))
    handle = hvd.broadcast_async(mine(torch.float32), 0, name="b")
    assert torch.equal(hvd.synchronize(handle), mine(torch.float32, 0))


def case_barrier():
    for last in range(SIZE):
        if RANK == last:
            time.sleep(0.05)
        came = time.monotonic()  # the same clock in all processes
        hvd.barrier()
        left = time.monotonic()
        assert left >= hvd.broadcast(torch.tensor(came, dtype=torch.float64), last).item()


def case_gradient_of_allreduce():
    for op, factor in [(hvd.Sum, SIZE), (hvd.Average, 1)]:
        x = mine(torch.float32).requires_grad_()
        hvd.allreduce(x, op=op).backward(torch.ones(3, 5))
        assert torch.equal(x.grad, torch.full((3, 5), float(factor)))


def case_gradient_of_allgather():
    x = torch.ones(RANK + 1, 2, requires_grad=True)
    rows = sum(r + 1 for r in range(SIZE))
    weights = torch.arange(rows * 2, dtype=torch.float32).reshape(rows, 2)
    (hvd.allgather(x) * weights).sum().backward()
    first = sum(r + 1 for r in range(RANK))
    assert torch.equal(x.grad, weights[first : first + RANK + 1])


def case_gradient_of_broadcast():
    x = mine(torch.float32).requires_grad_()
    hvd.broadcast(x, SIZE - 1).backward(torch.full((3, 5), float(RANK)))
    mean = sum(range(SIZE)) / SIZE
    expected = torch.full((3, 5), mean if RANK == SIZE - 1 else 0.0)
    torch.testing.assert_close(x.grad, expected)


def case_broadcast_object():
    sent = {"rank": RANK, "list": [1, "zwei", None], "tensor": torch.ones(2)}
    got = hvd.broadcast_object(sent if RANK == SIZE - 1 else None, root_rank=SIZE - 1)
    assert got["rank"] == SIZE - 1 and got["list"] == sent["list"] and torch.equal(got["tensor"], torch.ones(2))
    assert hvd.broadcast_object(lambda v: v + RANK, name="closure")(1) == 1
    assert hvd.broadcast_object("x" * 300_000 if RANK == 0 else 7, name="") == "x" * 300_000


def case_allgather_object():
    assert hvd.allgather_object("r" * (RANK + 1)) == ["r" * (r + 1) for r in range(SIZE)]


class Noticed:
    def __reduce__(self):
        return setattr, (sys, "hvd_test_unpickled", True)


@contextlib.contextmanager
def spoilt_objects():
    """In the block, the first byte of each object is another when it arrives."""
    true_calls = {name: getattr(_arrays, name) for name in ("broadcast_into", "allgather")}

    def spoiling(call):
        def spoilt_call(given, *args):
            result = call(given, *args)
            came = given if result is None else result
            if came.dtype == numpy.uint8:
                came[MAC_BYTES] ^= 1
            return result

        return spoilt_call

    for name, call in true_calls.items():
        setattr(_arrays, name, spoiling(call))
    try:
        yield
    finally:
        for name, call in true_calls.items():
            setattr(_arrays, name, call)


def case_objects_that_something_on_the_way_has_changed_are_not_unpickled():
    with spoilt_objects():  # of every front
        if RANK != 0:
            raises(HorovodInternalError, hvd.broadcast_object, Noticed(), 0)
        else:
            hvd.broadcast_object(Noticed(), 0)
        raises(HorovodInternalError, hvd.allgather_object, Noticed())
    assert not hasattr(sys, "hvd_test_unpickled")
    assert hvd.broadcast_object("as ever") == "as ever"
    assert hvd.allgather_object("r" * (RANK + 1)) == ["r" * (r + 1) for r in range(SIZE)]
    # Nor is one that is true, but another than the one that was asked for, or no more than a part of one.
    what = "broadcast_object one of rank 0 in process set 0"
    sealed = _objects.sealed("x", what)
    assert _objects.opened(sealed, what) == "x"
    raises(HorovodInternalError, _objects.opened, sealed, what.replace("rank 0", "rank 1"))
    raises(HorovodInternalError, _objects.opened, sealed[:20], what)


def case_broadcast_parameters():
    torch.manual_seed(RANK)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(2, 2))
    model.to(memory_format=torch.channels_last)
    model[1].num_batches_tracked += RANK + 5
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for name, tensor in model.state_dict().items():
        assert all(torch.equal(t, tensor) for t in hvd.allgather(tensor.unsqueeze(0), name=name)), name
    assert model[1].num_batches_tracked == 5
    values = [torch.full((2,), float(RANK)), ("named", torch.full((2,), float(RANK)))]
    hvd.broadcast_parameters(values, root_rank=SIZE - 1)
    assert values[0][0] == SIZE - 1 and values[1][1][0] == SIZE - 1
    raises(ValueError, hvd.broadcast_parameters, model.named_parameters(), root_rank=0)
    raises(ValueError, hvd.broadcast_parameters, {"epoch": 3}, root_rank=0)
    before = len(_handles._pending)
    raises(ValueError, hvd.broadcast_parameters, [("a", torch.ones(2)), ("b", torch.ones(2).to_mkldnn())], root_rank=0)
    assert len(_handles._pending) == before, "what was started is waited for"


def _same_everywhere(value):
    return all(repr(v) == repr(value) for v in hvd.allgather_object(value))


def case_broadcast_optimizer_state():
    classes = {
        "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, weight_decay=0.1),
        "plain sgd": lambda p, lr: torch.optim.SGD(p, lr=lr),
        "adam": lambda p, lr: torch.optim.Adam(p, lr=lr, amsgrad=True),
        "adamw": lambda p, lr: torch.optim.AdamW(p, lr=lr),
        "rmsprop": lambda p, lr: torch.optim.RMSprop(p, lr=lr),
        "adagrad": lambda p, lr: torch.optim.Adagrad(p, lr=lr),
    }
    for name, make in classes.items():
        for has_state in (lambda: RANK == 0, lambda: RANK != 0, lambda: True, lambda: False):
            torch.manual_seed(3)
            model = torch.nn.Linear(3, 2)
            optimizer = make(model.parameters(), 0.1 / (RANK + 1))
            if has_state():
                model(torch.full((1, 3), RANK + 1.0)).sum().backward()
                optimizer.step()
            before = copy.deepcopy(model.state_dict())
            own = optimizer.state_dict()
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            for key, tensor in model.state_dict().items():
                assert torch.equal(tensor, before[key]), f"{name}: parameters changed"
            assert optimizer.param_groups[0]["lr"] == 0.1
            assert _same_everywhere(optimizer.state_dict()), f"{name}: {optimizer.state_dict()}"
            if RANK == 0:
                assert repr(own) == repr(optimizer.state_dict()), f"{name}: the root's own state changed"
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
    lbfgs = torch.optim.LBFGS(torch.nn.Linear(1, 1).parameters())
    raises(ValueError, hvd.broadcast_optimizer_state, lbfgs, root_rank=0)


def _disagree(function):
    """Every rank gets HorovodInternalError, and the job goes on."""
    if SIZE > 1:
        message = raises(HorovodInternalError, function)
        assert torch.equal(hvd.allreduce(torch.ones(2)), torch.ones(2))
        return message
    return ""


def case_mismatched_shape():
    message = _disagree(lambda: hvd.allreduce(torch.ones(2 + RANK), name="shape"))
    assert SIZE != 2 or ("[2]" in message and "[3]" in message), message
    _disagree(lambda: hvd.allreduce(torch.ones(6 if RANK else (2, 3)), name="shape"))


def case_mismatched_type():
    dtype = torch.float64 if RANK else torch.float32
    message = _disagree(lambda: hvd.allreduce(torch.ones(2, dtype=dtype), name="type"))
    assert SIZE == 1 or ("float32" in message and "float64" in message), message


def case_mismatched_operator():
    _disagree(lambda: hvd.allreduce(torch.ones(2), op=hvd.Max if RANK else hvd.Sum, name="operator"))


def case_mismatched_factor():
    _disagree(lambda: hvd.allreduce(torch.ones(2), prescale_factor=1.0 + RANK, name="factor"))


def case_mismatched_root():
    _disagree(lambda: hvd.broadcast(torch.ones(2), min(RANK, 1), name="root"))


def case_mismatched_gather():
    _disagree(lambda: hvd.allgather(torch.ones(2, 2 + RANK), name="gather"))
    _disagree(lambda: hvd.allgather(torch.ones(2, 2) if RANK else torch.ones(2), name="gather"))


def case_wrong_arguments():
    raises(ValueError, hvd.allreduce, torch.ones(2).to(torch.float8_e5m2) if is_torch(2, 1) else torch.ones(2).to_mkldnn())
    for op in (hvd.Max, hvd.Min, hvd.Product, hvd.Adasum):
        told = raises(ValueError, hvd.allreduce, torch.ones(2, dtype=torch.complex64), op=op)
        assert "complex numbers have op=hvd.Sum and op=hvd.Average" in told
    raises(ValueError, hvd.allreduce, [1.0, 2.0])
    raises(ValueError, hvd.allreduce, torch.ones(2), op=77)
    raises(ValueError, hvd.allreduce, torch.ones(2), average=True, op=hvd.Sum)
    raises(ValueError, hvd.allreduce, torch.ones(2).to_sparse())
    raises((ValueError, HorovodInternalError), hvd.broadcast, torch.ones(2), SIZE)
    raises(ValueError, hvd.allreduce, torch.ones(2), process_set=hvd.ProcessSet([0]))
    assert "Adasum is of float16" in raises(ValueError, hvd.allreduce, torch.ones(2, dtype=torch.int32), op=hvd.Adasum)
    raises(RuntimeError, hvd.reducescatter, torch.ones(4), op=hvd.Adasum)
    assert torch.equal(hvd.allreduce(torch.ones(2)), torch.ones(2))


def case_timelines_one_after_another():
    """Each has all of the operations between its start and its stop, whichever way they took; cycles only where asked for."""
    with tempfile.TemporaryDirectory() as folder:
        for number, marks in enumerate([True, False, True]):
            path = pathlib.Path(folder) / str(number)
            hvd.start_timeline(str(path), mark_cycles=marks)
            hvd.allreduce(torch.tensor([1.0, 2.0, 3.0]), name=f"small {number}")
            hvd.synchronize(hvd.allreduce_async(torch.ones(4), name=f"async {number}"))
            hvd.stop_timeline()
            if RANK == 0:
                events = json.loads(path.read_text())
                names = {event["name"] for event in events}
                assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE"} <= names and ("CYCLE_START" in names) == marks
                tensors = {event["args"]["name"] for event in events if event["name"] == "process_name"}
                assert {f"allreduce.small {number}", f"allreduce.async {number}"} <= tensors
            hvd.barrier()
        hvd.start_timeline(f"{folder}/quick", mark_cycles=True)
        hvd.allreduce(torch.ones(2), name="quick")
        hvd.stop_timeline()
        assert RANK != 0 or "CYCLE_START" in pathlib.Path(f"{folder}/quick").read_text()


def case_name_twice():
    # The last rank comes when the others have seen that the first operation is pending when the name comes again.
    if RANK == SIZE - 1 and SIZE > 1:
        hvd.barrier()
        hvd.allreduce(torch.ones(2), name="twice")
    elif SIZE > 1:
        handle = hvd.allreduce_async(torch.ones(2), name="twice")
        message = raises(ValueError, hvd.allreduce_async, torch.ones(2), name="twice")
        assert "twice" in message
        hvd.barrier()
        assert torch.equal(hvd.synchronize(handle), torch.ones(2))


def _square_in_child(value):
    return value * value


def case_forked_workers():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(_square_in_child, [1, 2, 3]) == [1, 4, 9]
    data = torch.utils.data.TensorDataset(torch.arange(32.0))
    for _ in range(2):
        loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2)
        seen = sum(hvd.allreduce(batch[0].sum(), op=hvd.Sum).item() for batch in loader)
        assert seen == SIZE * sum(range(32))
    assert torch.equal(hvd.allreduce(torch.ones(2)), torch.ones(2))


if __name__ == "__main__":
    run_cases(dict(globals()), hvd.barrier)
    hvd.shutdown()
