"""What Horovod scripts rely on, beyond what each operation's own cases show: names that come twice, errors of every
operation, factors of every type, optimizers of every class, training scripts' patterns. Runs as a rank (test_multi.py)."""

import contextlib
import itertools
import warnings

import torch
import torch.nn.functional as F
from rank_side import is_torch, raises, run_cases

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
INTEGERS = [torch.uint8, torch.int8, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]

# Each takes a tensor whose rows divide among the ranks, and a name.
ASYNC = {
    "allreduce": lambda t, name: hvd.allreduce_async(t, name=name, op=hvd.Sum),
    "allreduce_": lambda t, name: hvd.allreduce_async_(t, name=name, op=hvd.Sum),
    "grouped_allreduce": lambda t, name: hvd.grouped_allreduce_async([t, t + 1], name=name, op=hvd.Sum),
    "grouped_allreduce_": lambda t, name: hvd.grouped_allreduce_async_([t, t + 1], name=name, op=hvd.Sum),
    "allgather": lambda t, name: hvd.allgather_async(t, name=name),
    "grouped_allgather": lambda t, name: hvd.grouped_allgather_async([t, t + 1], name=name),
    "broadcast": lambda t, name: hvd.broadcast_async(t, 0, name=name),
    "broadcast_": lambda t, name: hvd.broadcast_async_(t, 0, name=name),
    "alltoall": lambda t, name: hvd.alltoall_async(t, name=name),
    "reducescatter": lambda t, name: hvd.reducescatter_async(t, name=name, op=hvd.Sum),
    "grouped_reducescatter": lambda t, name: hvd.grouped_reducescatter_async([t, t + 1], name=name, op=hvd.Sum),
}


def rows(count=SIZE, width=3, dtype=torch.float32):
    return torch.ones(count, width, dtype=dtype)


# ---- every operation ----


def case_a_name_comes_twice():
    for kind, start in ASYNC.items():
        if RANK == SIZE - 1:
            hvd.barrier()  # the others have their error by then
            hvd.synchronize(start(rows(), "twice"))
        else:
            handle = start(rows(), "twice")
            assert "twice" in raises(ValueError, start, rows(), "twice"), kind
            hvd.barrier()
            hvd.synchronize(handle)
        hvd.synchronize(start(rows(), "twice"))  # and may come again when the first is done


def case_an_empty_name_is_none():
    """So several may be in flight, as in Horovod."""
    for kind, start in ASYNC.items():
        if RANK == SIZE - 1:
            hvd.barrier()  # all others have started all of them by then
        handles = [start(rows(), "") for _ in range(3)]
        if RANK != SIZE - 1:
            hvd.barrier()
        assert all(hvd.synchronize(handle) is not None for handle in handles), kind


def case_asynchronous_means_not_done_at_once():
    """Where all but one rank have started, none is done; then all end, in whatever order they are waited for."""
    for kind, start in ASYNC.items():
        if RANK == 0:
            hvd.barrier()
        handles = [start(rows(), f"{kind}.{i}") for i in range(5)]
        if RANK != 0:
            assert not any(hvd.poll(handle) for handle in handles), kind
            hvd.barrier()
        for handle in reversed(handles):
            while not hvd.poll(handle):
                pass
            hvd.synchronize(handle)
            assert hvd.synchronize(handle) is None, "it was taken"


def disagree(kind, start, mine):
    """Every rank gets an error that names both sides; the job goes on."""
    with contextlib.suppress(HorovodInternalError):
        hvd.synchronize(start(mine, "disagree"))
        assert SIZE == 1, kind
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE


def case_ranks_disagree():
    one = RANK == SIZE - 1 and SIZE > 1
    for kind, start in ASYNC.items():
        disagree(kind, start, rows(dtype=torch.float64 if one else torch.float32))
        disagree(kind, start, rows(dtype=torch.int32 if one else torch.float32))
        disagree(kind, start, rows(width=4 if one else 3))
        disagree(kind, start, rows().reshape(SIZE, 3, 1) if one else rows())
        if "gather" not in kind and kind != "alltoall":
            disagree(kind, start, rows(count=2 * SIZE if one else SIZE))


def case_operations_of_different_kinds_under_one_name():
    for kind, other in [("allreduce", "allgather"), ("broadcast", "allreduce"), ("alltoall", "reducescatter")]:
        # Names have their kind before them, so that these are two operations, whichever comes first.
        first, second = (ASYNC[kind], ASYNC[other]) if RANK % 2 else (ASYNC[other], ASYNC[kind])
        handles = [first(rows(), "one"), second(rows(), "one")]
        assert len([hvd.synchronize(handle) for handle in handles]) == 2


def case_local_errors():
    for call in [
        lambda: hvd.allgather(torch.tensor(1.0)),
        lambda: hvd.reducescatter(torch.tensor(1.0)),
        lambda: hvd.grouped_reducescatter([torch.tensor(1.0), torch.tensor(2.0)]),
        lambda: hvd.alltoall(torch.tensor(1.0)),
    ]:
        raises((ValueError, RuntimeError), call)
    for call in [
        lambda: hvd.alltoall(torch.ones(SIZE + 1) if SIZE > 1 else "1"),
        lambda: hvd.alltoall(rows(), splits=torch.ones(SIZE, dtype=torch.float32)),
        lambda: hvd.alltoall(rows(), splits=torch.full((SIZE,), 2, dtype=torch.int32)),
        lambda: hvd.alltoall(rows(), splits=torch.ones(SIZE + 1, dtype=torch.int32)),
        lambda: hvd.alltoall(rows(), splits=[-1] * SIZE),
    ]:
        raises(ValueError, call)
    for op in (hvd.Adasum, hvd.Min, hvd.Max, hvd.Product):  # Horovod's is no ValueError here
        raises(RuntimeError, hvd.reducescatter, rows(), op=op)
        raises(RuntimeError, hvd.reducescatter_async, rows(), op=op)
        raises(RuntimeError, hvd.grouped_reducescatter, [rows()], op=op)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE


def scaled(tensor, factor):
    """As Horovod has it on CPUs: integers in double precision and cut, 16-bit floats in single precision."""
    wide = torch.float64 if tensor.dtype in INTEGERS else torch.float32 if tensor.dtype in FLOATS[:2] else tensor.dtype
    return (tensor.to(wide) * torch.tensor(factor, dtype=wide)).to(tensor.dtype)


def case_factors_of_every_type():
    generator = torch.Generator().manual_seed(1234)  # the same on every rank
    for dtype, dims in itertools.product(INTEGERS + FLOATS, (1, 2, 3)):
        if dtype == torch.uint8:
            tensor = torch.randint(0, 50, [SIZE * 2] * dims, generator=generator).to(dtype)
        else:
            tensor = torch.randint(-25, 25, [SIZE * 2] * dims, generator=generator).to(dtype)
        factor = torch.rand(1, generator=generator).item()
        before = scaled(tensor, factor) * SIZE
        after = scaled(tensor * SIZE, factor)
        close = dict(rtol=2e-2 if dtype in FLOATS[:2] else 1e-6, atol=0.2 if dtype in FLOATS[:2] else 1e-6)
        if dtype in INTEGERS:
            close = dict(rtol=0, atol=0)
        pre, post = {"prescale_factor": factor}, {"postscale_factor": factor}
        mine = slice(RANK * 2, RANK * 2 + 2)
        for factors, expected in ((pre, before), (post, after)):
            torch.testing.assert_close(hvd.allreduce(tensor, op=hvd.Sum, **factors), expected, **close)
            torch.testing.assert_close(hvd.allreduce_(tensor.clone(), op=hvd.Sum, **factors), expected, **close)
            for grouped in (hvd.grouped_allreduce, hvd.grouped_allreduce_):
                for one in grouped([tensor.clone(), tensor.clone()], op=hvd.Sum, **factors):
                    torch.testing.assert_close(one, expected, **close)
            torch.testing.assert_close(hvd.reducescatter(tensor, op=hvd.Sum, **factors), expected[mine], **close)
            for one in hvd.grouped_reducescatter([tensor, tensor], op=hvd.Sum, **factors):
                torch.testing.assert_close(one, expected[mine], **close)


def case_many_sparse_tensors_in_flight():
    tensors = [torch.rand(size, 4, generator=torch.Generator().manual_seed(size)).to_sparse(1) for size in (17, 3, 12) * 5]
    for op, factor in ((hvd.Average, 1), (hvd.Sum, SIZE)):
        finishes = [hvd.sparse_allreduce_async(t, name=f"{op}.{i}", op=op) for i, t in enumerate(tensors)]
        for tensor, finish in zip(tensors, finishes):
            torch.testing.assert_close(finish().to_dense(), tensor.to_dense() * factor)


def case_compressors_by_themselves():
    for compressor, narrow in ((hvd.Compression.fp16, torch.float16), (hvd.Compression.bf16, torch.bfloat16)):
        for dtype in (torch.float32, torch.float64):
            tensor = torch.full((5,), 1.5, dtype=dtype)
            compressed, ctx = compressor.compress(tensor)
            assert compressed.dtype == narrow
            assert torch.equal(compressor.decompress(compressed, ctx), tensor)
        for dtype in INTEGERS:
            tensor = torch.ones(5, dtype=dtype)
            compressed, ctx = compressor.compress(tensor)
            assert compressed.dtype == dtype and torch.equal(compressor.decompress(compressed, ctx), tensor)
    tensor = torch.ones(2)
    assert hvd.Compression.none.compress(tensor) == (tensor, None) and hvd.Compression.none.decompress(tensor, None) is tensor


def case_the_last_one_to_join_is_told():
    for first in range(SIZE):
        for again in range(2):  # the second time under names that are known
            if RANK != first:
                total = hvd.allreduce(torch.full((4,), 2.0), op=hvd.Sum, name=f"of {first}")
                assert total[0] == 2 * (SIZE - 1)
                average = hvd.allreduce(torch.full((4,), 2.0), name=f"average of {first}")
                torch.testing.assert_close(average, torch.full((4,), 2.0 * (SIZE - 1) / SIZE))
            last = hvd.join()
            assert 0 <= last < SIZE and (SIZE == 1 or last != first)
            assert all(other == last for other in hvd.allgather_object(last))


def case_unnamed_operations_after_a_join():
    """Those that joined early asked for fewer unnamed ones than the others; nobody may wait for another number then."""
    for first in range(SIZE):
        for _ in range(3 if RANK != first else 0):
            hvd.allreduce(rows(), op=hvd.Sum)
        pending = hvd.allreduce_async(rows(), op=hvd.Sum)
        if RANK != first and SIZE > 1:
            raises(HorovodInternalError, hvd.allgather, rows())
            raises(HorovodInternalError, hvd.broadcast, rows(), RANK)
        hvd.join()
        hvd.synchronize(pending)
        assert hvd.allgather(torch.tensor([RANK])).tolist() == list(range(SIZE))
        assert hvd.broadcast(torch.tensor([RANK]), first).item() == first
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE
        handles = [hvd.allreduce_async(torch.full((n + 1,), 1.0), op=hvd.Sum) for n in range(5)]
        assert [hvd.synchronize(h)[n].item() for n, h in enumerate(handles)] == [SIZE] * 5


# ---- optimizers ----

OPTIMIZERS = {
    "SGD": dict(lr=0.2, momentum=0.9, weight_decay=0.1, nesterov=True),
    "Adadelta": dict(rho=0.95, weight_decay=0.1),
    "Adagrad": dict(lr=0.02, lr_decay=0.1, weight_decay=0.2),
    "Adam": dict(lr=0.002, betas=(0.8, 0.95), weight_decay=0.01, amsgrad=True),
    "AdamW": dict(lr=0.002, betas=(0.8, 0.95)),
    "Adamax": dict(lr=0.003, betas=(0.8, 0.95)),
    "ASGD": dict(lr=0.02, lambd=1e-3),
    "NAdam": dict(lr=0.002),
    "RAdam": dict(lr=0.002),
    "RMSprop": dict(lr=0.02, alpha=0.9, momentum=0.5, centered=True),
    "Rprop": dict(lr=0.02, etas=(0.4, 1.3)),
    "Adafactor": dict(lr=0.02),
}


def optimizer_of(name, parameters, **options):
    return getattr(torch.optim, name)(parameters, **options)


def case_state_of_every_optimizer():
    """Rank 0 has trained, and options of its own; the others take over all of it, types too."""
    for name, options in OPTIMIZERS.items():
        if not hasattr(torch.optim, name):
            continue
        torch.manual_seed(RANK)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        model[0].bias.requires_grad_(False)
        own = options if RANK == 0 else {"lr": 0.5}  # SGD demands one before torch 2.2
        optimizer = optimizer_of(name, model.parameters(), **own)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        if RANK == 0:
            with optimizer.skip_synchronize():
                plain = optimizer_of(name, model.parameters(), **options)
                model(torch.ones(2, 3)).sum().backward() if SIZE == 1 else None
                plain.step()
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        described = hvd.allgather_object(repr(optimizer.state_dict()))
        assert all(other == described[0] for other in described), name
        for key, value in options.items():
            has = optimizer.param_groups[0][key]
            assert has == value and type(has) is type(value), f"{name}: {key} is {has!r}, not {value!r}"
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.full((2, 3), RANK + 1.0)).square().sum().backward()
            optimizer.step()
        for parameter in model.parameters():
            assert all(torch.equal(t, parameter) for t in hvd.allgather(parameter.detach().unsqueeze(0))), name


def case_heads_that_only_some_ranks_use():
    """A reduction of every gradient also where ranks take different ways, with every optimizer."""

    class TwoHeads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.left, self.right = (torch.nn.Linear(*s) for s in ((4, 6), (6, 1), (6, 2)))

        def forward(self, x):
            return (self.left if RANK % 2 else self.right)(self.body(x))

    for name, options in OPTIMIZERS.items():
        if not hasattr(torch.optim, name):
            continue
        torch.manual_seed(1)
        model = TwoHeads()
        optimizer = hvd.DistributedOptimizer(optimizer_of(name, model.parameters(), **options), model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).square().mean().backward()
            optimizer.step()
        for parameter in model.parameters():
            assert all(torch.equal(t, parameter) for t in hvd.allgather(parameter.detach().unsqueeze(0))), name


def case_two_optimizers_that_take_turns():
    """As with adversarial networks: each step trains one part while the other's parameters need no gradient."""
    torch.manual_seed(4)
    parts = {"maker": torch.nn.Linear(2, 8), "judge": torch.nn.Linear(8, 1)}
    optimizers = {
        name: hvd.DistributedOptimizer(torch.optim.SGD(part.parameters(), lr=0.1), part.named_parameters(prefix=name))
        for name, part in parts.items()
    }
    for step in range(6):
        name = "maker" if step % 2 else "judge"
        other = "judge" if step % 2 else "maker"
        for parameter in parts[other].parameters():
            parameter.requires_grad_(False)
        before = [p.detach().clone() for p in parts[other].parameters()]
        optimizers[name].zero_grad()
        parts["judge"](parts["maker"](torch.full((3, 2), RANK + 1.0))).sigmoid().mean().backward()
        optimizers[name].step()
        assert all(torch.equal(a, b) for a, b in zip(before, parts[other].parameters()))
        for parameter in parts[other].parameters():
            parameter.requires_grad_(True)
    for part in parts.values():
        assert all(torch.equal(t, part.weight) for t in hvd.allgather(part.weight.detach().unsqueeze(0)))


def case_clipped_gradients_are_those_of_all_ranks():
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    model(torch.full((1, 1), 10.0 * (RANK + 1))).sum().backward()
    optimizer.synchronize()
    mean = 10.0 * (SIZE + 1) / 2
    assert abs(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1).item() - mean) < 1e-3 * mean
    with optimizer.skip_synchronize():
        optimizer.step()
    torch.testing.assert_close(model.weight.detach(), torch.tensor([[0.9]]), rtol=1e-4, atol=1e-5)


def case_one_warning_where_a_step_synchronizes_again():
    model = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    assert len(caught) == 1
    assert "optimizer.step() called without optimizer.skip_synchronize()" in str(caught[0].message)


def case_a_callback_that_synchronizes_sets_the_flag_itself():
    """It sets what skip_synchronize sets, because its two halves are called apart."""
    model = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    assert optimizer._should_synchronize
    model(torch.ones(1, 2)).sum().backward()
    optimizer.synchronize()
    optimizer._should_synchronize = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
    optimizer._should_synchronize = True


def case_classes_that_are_derived_from_the_first_base():
    """Lightning 1 makes one for each optimizer that has skip_synchronize, and gives it the attributes."""
    for op in (hvd.Average, hvd.Adasum):
        model = torch.nn.Linear(2, 1)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=op)
        derived = type("Derived", (type(optimizer).__bases__[0],), {})
        assert issubclass(derived, torch.optim.SGD)
        other = derived.__new__(derived)
        other.__dict__ = dict(optimizer.__dict__)
        model(torch.ones(1, 2)).sum().backward()
        other.step()
        other.zero_grad(set_to_none=True)
        assert model.weight.grad is None


def case_state_that_belongs_to_no_parameter_is_broadcast():
    """MADGRAD counts its steps there. What only the others have is dropped."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if RANK == 0:
        optimizer.state["k"] = torch.tensor([7])
        optimizer.state["factor"] = 0.5
    else:
        optimizer.state["own"] = 1
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert dict(optimizer.state) == {"k": torch.tensor([7]), "factor": 0.5}


class Lookahead(torch.optim.Optimizer):
    """As timm's: the state is that of the optimizer within, and so are the parameter groups; it is no other's base."""

    def __init__(self, within):
        self._within, self.state, self.defaults = within, {}, within.defaults
        self.param_groups = within.param_groups


class Several:
    """As those that give each kind of layer an optimizer of its own."""

    def __init__(self, **optimizers):
        self.optimizers, self.state = optimizers, {}
        self.param_groups = [group for each in optimizers.values() for group in each.param_groups]


def case_the_state_of_wrapped_optimizers_is_broadcast():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    for make in (
        lambda: Lookahead(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)),
        lambda: Lookahead(Lookahead(torch.optim.Adam(model.parameters()))),
        lambda: Several(a=torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9), b=torch.optim.Adam(model[1].parameters())),
    ):
        optimizer = make()
        within = getattr(optimizer, "optimizers", None) or {"": getattr(optimizer._within, "_within", optimizer._within)}
        if RANK == 0:
            for p in model.parameters():
                p.grad = torch.full_like(p, 2.0)
            for each in within.values():
                each.step()
        hvd.broadcast_parameters(model.state_dict(), 0)
        hvd.broadcast_optimizer_state(optimizer, 0)
        described = hvd.allgather_object([repr(each.state_dict()) for each in within.values()])
        assert all(each.state for each in within.values()) and all(other == described[0] for other in described)
        model.zero_grad()
    raises(ValueError, hvd.broadcast_optimizer_state, Lookahead(torch.optim.LBFGS(model.parameters())), 0)


def case_hooks_of_scripts_change_gradients_before_they_travel():
    """Also those that come later than the optimizer's."""
    if not is_torch(2, 1):
        return

    def replace(p):
        hvd.barrier()  # what has started before is done then
        assert p.grad[0, 0] == RANK + 1.0
        p.grad.fill_(3.0 * RANK)

    for groups in (None, 1):
        model = torch.nn.Linear(512, 512)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), groups=groups)
        model.weight.register_post_accumulate_grad_hook(replace)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.full((1, 512), RANK + 1.0)).sum().backward()
            assert torch.equal(model.weight.grad, torch.full((512, 512), 1.5 * (SIZE - 1)))
            assert torch.equal(model.bias.grad, torch.ones(512))
            optimizer.step()


def case_a_hook_of_the_script_steps_within_backward():
    """Each parameter has an optimizer of its own, which steps as soon as its gradient is there; torch has a tutorial of that."""
    if not is_torch(2, 1):
        return
    for set_to_none in (True, False):
        model = torch.nn.Linear(2, 2)
        with torch.no_grad():
            model.weight.fill_(1.0)
            model.bias.fill_(0.0)
        optimizers = {
            p: hvd.DistributedOptimizer(torch.optim.SGD([p], lr=0.5), [(name, p)]) for name, p in model.named_parameters()
        }

        def step(p):
            optimizers[p].step()
            optimizers[p].zero_grad(set_to_none=set_to_none)

        for p in optimizers:
            p.register_post_accumulate_grad_hook(step)
        for number in range(1, 4):
            model(torch.full((1, 2), RANK + 1.0)).sum().backward()
            average = (SIZE + 1) / 2
            assert torch.equal(model.weight.detach(), torch.full((2, 2), 1.0 - 0.5 * number * average)), (set_to_none, number)
            assert torch.equal(model.bias.detach(), torch.full((2,), -0.5 * number))


def case_compressions_of_scripts_see_every_gradient():
    """Also where they work in the gradient's own memory, or only undo with another number."""

    class InPlace:
        calls = 0

        def __eq__(self, other):  # so that it cannot be the key of a dict
            return self is other

        def compress(self, tensor):
            self.calls += 1
            return tensor.clamp_(-1, 1), None

        def decompress(self, tensor, ctx):
            self.calls += 1
            return tensor

    class Factor:
        @staticmethod
        def compress(tensor):
            return tensor, 3.0

        @staticmethod
        def decompress(tensor, ctx):
            return tensor * ctx

    for groups in (None, 1):
        in_place = InPlace()
        for compression, expected in ((in_place, 1.0), (Factor, 15.0)):
            model = torch.nn.Linear(2, 1)
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), compression, groups=groups
            )
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.full((1, 2), 5.0)).sum().backward()
                assert SIZE == 1 or torch.equal(model.weight.grad, torch.full((1, 2), expected))
                assert SIZE == 1 or torch.equal(model.bias.grad, torch.full((1,), expected / 5 if compression is Factor else 1.0))
                optimizer.step()
        assert in_place.calls == (12 if SIZE > 1 else 0)


def case_names_of_parameters():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    groups = [{"params": model[0].parameters()}, {"params": model[1].parameters()}]
    names = hvd.DistributedOptimizer(torch.optim.SGD(groups, lr=0.1))._parameter_names
    assert len(names) == 4 and len(set(names.values())) == 4
    named = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    assert named._parameter_names == {p: name for name, p in model.named_parameters()}


def case_gradients_are_there_once_the_state_was_broadcast():
    """Of an optimizer that never stepped: scripts look at them before their first backward pass."""
    model = torch.nn.Sequential(torch.nn.Embedding(5, 3, sparse=True), torch.nn.Linear(3, 2), torch.nn.Linear(2, 2))
    model[1].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
    assert model[1].bias.grad is None and model[0].weight.grad.is_sparse
    assert torch.equal(hvd.broadcast(model[1].weight.grad, root_rank=0), torch.zeros(2, 3))
    model(torch.tensor([RANK % 5])).sum().backward()
    assert model[0].weight.grad.is_sparse
    optimizer.step()
    optimizer.zero_grad()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert all(p.grad is None for p in model.parameters()), "it has stepped"


def case_a_tensor_as_learning_rate():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1 * (RANK + 1)))
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert float(optimizer.param_groups[0]["lr"]) == float(torch.tensor(0.1))


def case_embeddings_of_a_sparse_optimizer():
    for dense in (False, True):
        torch.manual_seed(0)
        embedding = torch.nn.EmbeddingBag(10, 4, sparse=True)
        optimizer = torch.optim.SparseAdam(list(embedding.parameters()), lr=0.1)
        optimizer = hvd.DistributedOptimizer(optimizer, embedding.named_parameters(), sparse_as_dense=dense)
        hvd.broadcast_parameters(embedding.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=embedding)
        for step in range(3):
            optimizer.zero_grad()
            words = torch.tensor([[RANK % 10, 3], [(RANK + step) % 10, 5]])
            F.mse_loss(embedding(words), torch.zeros(2, 4)).backward()
            optimizer.step()
        assert all(torch.equal(t, embedding.weight) for t in hvd.allgather(embedding.weight.detach().unsqueeze(0)))


if __name__ == "__main__":
    run_cases(dict(globals()), hvd.barrier)
    hvd.shutdown()
