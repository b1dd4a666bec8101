"""The cases of SyncBatchNorm, of elastic training, and of whole trainings that must equal one process's; runs as a rank
(test_multi.py), on any number of ranks."""

import copy
import random

import torch
import torch.nn.functional as F
from rank_side import raises, run_cases

import horovod.torch as hvd
from horovod.common.elastic import MAX_FAILURES_WITHOUT_COMMIT
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.torch.elastic.state import StateHandler, get_handler_registry, set_handler_registry

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


# ---- SyncBatchNorm ----


def rows(rank):
    """How many of a batch are a rank's; unevenly."""
    return 3 + rank


def part_of(x):
    first = sum(rows(r) for r in range(RANK))
    return x[first : first + rows(RANK)]


def check_norm(shape, dtype=torch.float32, momentum=0.1, affine=True, tolerance=1e-5):
    torch.manual_seed(4)
    total = sum(rows(r) for r in range(SIZE))
    kind = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d}[len(shape) + 1]
    reference = kind(shape[0], momentum=momentum, affine=affine).to(torch.float64)
    ours = hvd.SyncBatchNorm(shape[0], momentum=momentum, affine=affine)
    if dtype is torch.float64:
        ours.double()
    if affine:
        with torch.no_grad():
            reference.weight.uniform_(0.5, 2.0)
            reference.bias.uniform_(-1.0, 1.0)
            ours.weight.copy_(reference.weight)
            ours.bias.copy_(reference.bias)
    for _ in range(2):
        whole = (torch.randn(total, *shape, dtype=torch.float64) * 3 + 100).to(dtype)  # a mean that cancels
        weights = torch.randn_like(whole, dtype=torch.float64)
        x, y = whole.double().clone().requires_grad_(), part_of(whole).clone().requires_grad_()
        expected = reference(x)
        (expected * weights).sum().backward()
        output = ours(y)
        assert output.dtype == dtype
        (output.double() * part_of(weights)).sum().backward()
        torch.testing.assert_close(output.double(), part_of(expected), rtol=tolerance, atol=tolerance * 10)
        torch.testing.assert_close(y.grad.double(), part_of(x.grad), rtol=tolerance, atol=tolerance * 10)
    for ours_one, theirs in zip(ours.buffers(), reference.buffers()):
        torch.testing.assert_close(ours_one.double(), theirs.double(), rtol=tolerance, atol=tolerance)
    if affine:
        for p, q in ((ours.weight, reference.weight), (ours.bias, reference.bias)):
            total_gradient = hvd.allreduce(p.grad.double(), op=hvd.Sum)
            torch.testing.assert_close(total_gradient, q.grad, rtol=tolerance, atol=tolerance * 200)
    ours.eval(), reference.eval()
    own = part_of(whole)
    torch.testing.assert_close(ours(own).double(), reference(own.double()), rtol=tolerance, atol=tolerance * 10)


def case_sync_batch_norm():
    check_norm((5,), torch.float64, tolerance=1e-9)
    check_norm((4, 3), momentum=None, tolerance=1e-4)
    check_norm((2, 4, 3), affine=False, tolerance=1e-4)


def case_sync_batch_norm_of_16_bit():
    for dtype in (torch.float16, torch.bfloat16):
        torch.manual_seed(RANK)
        norm = hvd.SyncBatchNorm(3)
        x = torch.randn(4, 3, dtype=dtype, requires_grad=True)
        output = norm(x)
        output.sum().backward()
        assert output.dtype == x.grad.dtype == dtype and norm.weight.grad.dtype == torch.float32
        total = hvd.allreduce(output.detach().float().sum(0), op=hvd.Sum)
        assert total.abs().max() < 0.5


def case_sync_batch_norm_with_an_empty_batch():
    norm = hvd.SyncBatchNorm(2)
    x = torch.randn(0 if RANK == 0 and SIZE > 1 else 4, 2, requires_grad=True)
    norm(x).square().sum().backward()
    assert x.grad.shape == x.shape and torch.isfinite(x.grad).all() and torch.isfinite(norm.running_var).all()


def case_sync_batch_norm_is_evaluated_by_torchscript_and_by_modules_that_horovod_has_pickled():
    norm = hvd.SyncBatchNorm(2)
    x = torch.randn(4, 2)
    norm(x)
    expected = norm.eval()(x)
    torch.testing.assert_close(torch.jit.script(norm)(x), expected)
    del norm.process_set
    norm.train()
    assert norm(x).shape == expected.shape


def case_sync_batch_norm_refuses():
    norm = hvd.SyncBatchNorm(2)
    raises(ValueError, norm, torch.ones(2))
    raises((ValueError, RuntimeError), norm, torch.ones(4, 3))
    raises(ValueError, norm, torch.ones(1 if RANK == 0 else 0, 2))
    assert torch.equal(hvd.allreduce(torch.ones(1)), torch.ones(1))


def case_a_gradient_of_a_norms_gradient_is_refused():
    norm = hvd.SyncBatchNorm(2)
    x = torch.randn(rows(RANK), 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(norm(x).square().sum(), x, create_graph=True)
    if SIZE > 1:  # alone it is torch's own
        assert "once_differentiable" in raises(RuntimeError, gradient.square().sum().backward)


# ---- elastic ----


def elastic_training(break_at=None, how=None):
    """10 steps, a commit after each even one; how often the function began, and the weights at the end."""
    torch.manual_seed(RANK)
    model = torch.nn.Linear(3, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    sampler = hvd.elastic.ElasticSampler(list(range(40)))
    state = hvd.elastic.TorchState(model, optimizer, step=0, seen=[], sampler=sampler)
    state.register_reset_callbacks([lambda: resets.append(state.step)])
    resets, begun = [], []

    @hvd.elastic.run
    def train(state):
        begun.append(state.step)
        while state.step < 10:
            optimizer.zero_grad()
            loss = model(torch.full((2, 3), 0.1 * state.step + 1)).square().mean()
            if break_at == state.step and len(begun) == 1:
                how()
            loss.backward()
            optimizer.step()
            state.seen.append(state.step)
            sampler.record_batch(0, 1)
            state.step += 1
            if state.step % 2 == 0:
                state.commit()
        return "done"

    assert train(state) == "done" and state.seen == list(range(10))
    assert sampler.processed_num == 10 * SIZE
    return begun, resets, model.weight.detach().clone()


def case_elastic_goes_on():
    hvd.shutdown()
    hvd.init()
    torch.manual_seed(0)
    begun, resets, expected = elastic_training()
    assert begun == [0] and resets == []
    assert all(torch.equal(t, expected) for t in hvd.allgather(expected.unsqueeze(0)))

    def leave():
        """The last rank leaves; the others' reduction fails, or their next one."""
        if RANK == SIZE - 1:
            hvd.shutdown()

    if SIZE == 1:
        return
    begun, resets, weights = elastic_training(5, leave)
    assert begun == [0, 4] and len(resets) == 1, (begun, resets)
    torch.testing.assert_close(weights, expected)

    def disagree():
        hvd.allreduce(torch.ones(2 + RANK), name="disagree")

    begun, resets, weights = elastic_training(7, disagree)
    assert begun == [0, 6] and resets == [6]
    torch.testing.assert_close(weights, expected)


def case_elastic_gives_up():
    calls = []

    @hvd.elastic.run
    def train(state):
        calls.append(1)
        raise HorovodInternalError("of the script's own")

    raises(HorovodInternalError, train, hvd.elastic.TorchState(epoch=0))
    assert len(calls) == MAX_FAILURES_WITHOUT_COMMIT + 1
    raises(KeyError, hvd.elastic.run(lambda state: {}["nothing"]), hvd.elastic.TorchState())


def case_elastic_state():
    model, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    state = hvd.elastic.TorchState(model=model, epoch=1, nothing=None)
    before = copy.deepcopy(model.state_dict())
    state.commit()
    with torch.no_grad():
        model.weight.add_(1)
    state.epoch = 7
    state.restore()
    assert torch.equal(model.weight, before["weight"]) and state.epoch == 1 and state.nothing is None
    state.model = other
    assert state.model is other
    with torch.no_grad():
        other.weight.fill_(RANK)
    state.epoch = RANK + 3
    state._commits = 5 if RANK == SIZE - 1 else 2
    state.sync()
    assert state.epoch == SIZE + 2 and torch.equal(other.weight, torch.full((2, 2), SIZE - 1.0))
    state.on_hosts_updated(1, 1)
    try:
        state.commit()
        raise AssertionError("no interrupt")
    except HostsUpdatedInterrupt as interrupt:
        assert interrupt.skip_sync
    state.commit()


class Remembers(torch.nn.Linear):
    """A layer that has a state besides its tensors."""

    memory = None

    def get_extra_state(self):
        return self.memory

    def set_extra_state(self, memory):
        self.memory = memory


def case_elastic_state_of_a_model_that_has_more_than_tensors():
    model = torch.nn.Sequential(Remembers(2, 2), Remembers(2, 1), torch.nn.BatchNorm1d(1))
    model[0].memory = {"calls": RANK}
    model[1].memory = torch.full((3,), float(RANK)) if RANK == SIZE - 1 else None  # a tensor on one rank
    torch.nn.init.constant_(model[0].weight, RANK)
    weight = model[0].weight.data_ptr()
    state = hvd.elastic.TorchState(model=model)
    state._commits = 5 if RANK == SIZE - 1 else 2
    state.sync()
    assert model[0].memory == {"calls": SIZE - 1} and model[1].memory.tolist() == [SIZE - 1.0] * 3
    assert model[0].weight.tolist() == [[SIZE - 1.0] * 2] * 2 and model[0].weight.data_ptr() == weight
    assert "get_extra_state" in raises(ValueError, hvd.broadcast_parameters, model.state_dict(), 0)
    model.load_state_dict(hvd.broadcast_object(model.state_dict(), 0))


def case_what_a_model_remembers_is_restored_as_often_as_is_needed():
    model = Remembers(1, 1)
    model.memory = torch.zeros(1)
    state = hvd.elastic.TorchState(model=model)
    state.restore()
    for committed in (1, 2):
        model.memory += 1
        state.save()
        model.memory += 5
        state.restore()
        assert model.memory.tolist() == [committed]


def case_elastic_optimizers_that_are_made_anew_have_the_names_of_a_newcomers():
    def named(layer):
        return hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=1.0), layer.named_parameters(prefix="anew"))

    def unnamed():
        return hvd.DistributedOptimizer(torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=1.0))

    outside = named(torch.nn.Linear(1, 1))
    numbers = {unnamed()._hvd_number}
    found = []

    @hvd.elastic.run
    def train(state):
        found.append(list(named(torch.nn.Linear(1, 1))._hvd_travelling.values()))
        numbers.add(unnamed()._hvd_number)
        if len(found) < 3:
            raise HorovodInternalError("of the script's own")

    train(hvd.elastic.TorchState(epoch=0))
    assert found == [["anew.weight#2", "anew.bias#2"]] * 3, found
    assert list(outside._hvd_travelling.values()) == ["anew.weight", "anew.bias"]
    assert len(numbers) == 2 and max(numbers) - min(numbers) == 1, numbers


def case_elastic_state_of_all_that_trains():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, rng=True, scheduler=scheduler)
    state.commit()
    first = [torch.rand(1), random.random()]
    optimizer.step()
    scheduler.step()
    assert scheduler.last_epoch == 1 and optimizer.param_groups[0]["lr"] == 0.5
    state.restore()
    assert scheduler.last_epoch == 0 and optimizer.param_groups[0]["lr"] == 1.0
    assert state.scheduler is scheduler and scheduler.optimizer is optimizer
    assert [torch.rand(1), random.random()] == first, "what is done again is done with the same numbers"
    torch.manual_seed(RANK)
    for _ in range(RANK + 1):
        scheduler.step()
    state.save()
    state._commits = 5 if RANK == SIZE - 1 else 2
    state.sync()
    assert scheduler.last_epoch == SIZE, "the schedule is that of the rank which has committed most"
    own = torch.rand(1)
    torch.manual_seed(RANK)
    assert own == torch.rand(1), "random numbers stay a rank's own"

    def lines():
        return [line for line in hvd.elastic.check(state) if "Odd" in line]

    class OddSGD(torch.optim.SGD):
        pass

    class OddModel(torch.nn.Linear):
        pass

    assert lines() == []
    forgotten = OddModel(3, 2)
    other = OddSGD(forgotten.parameters(), lr=1.0)
    assert lines() == ["OddModel: a model, of which 8 trained numbers are not in the state", "OddSGD: an optimizer"]
    state = hvd.elastic.TorchState(model=forgotten, optimizer=other)
    assert lines() == []


class OtherScheduler:
    """A scheduler of another project, as timm's, which derives from none of torch's."""

    def __init__(self, optimizer):
        self.optimizer, self.rounds = optimizer, 0

    def step(self):
        self.rounds += 1
        self.optimizer.param_groups[0]["lr"] = 1.0 / 2**self.rounds

    def state_dict(self):
        return {"rounds": self.rounds}

    def load_state_dict(self, state):
        self.rounds = state["rounds"]


def case_elastic_state_of_a_scheduler_of_another_project():
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=1.0)
    scheduler = OtherScheduler(optimizer)
    state = hvd.elastic.TorchState(optimizer=optimizer, scheduler=scheduler)
    assert state.scheduler is scheduler and state.covers(scheduler)
    state.scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.5, "it drives the script's own optimizer"
    state.commit()
    state.scheduler.step()
    state.restore()
    assert state.scheduler is scheduler and scheduler.rounds == 1 and optimizer.param_groups[0]["lr"] == 0.5
    for _ in range(RANK):
        scheduler.step()
    state.save()
    state._commits = 5 if RANK == SIZE - 1 else 2
    state.sync()
    assert scheduler.rounds == SIZE and scheduler.optimizer is optimizer


class Bag:
    """A value of a script's own, which a handler of its own synchronises."""

    def __init__(self):
        self.what = RANK


class BagHandler(StateHandler):
    def save(self):
        pass

    def restore(self):
        self.value.what = "restored"

    def sync(self, root_rank=0):
        self.value.what = hvd.broadcast_object(self.value.what, root_rank)


def case_elastic_state_of_what_a_script_has_put_into_the_registry():
    """As in Horovod, the registry that is read is the one that counts, and so is the list that replaces it."""
    horovods = get_handler_registry()
    own = [(Bag, BagHandler)]
    for registry in (horovods, own):
        set_handler_registry(registry)
        registry.append((Bag, BagHandler))
        try:
            bag = Bag()
            state = hvd.elastic.TorchState(bag=bag, number=RANK)
            assert state.bag is bag and get_handler_registry() is registry
            state.sync()
            assert state.bag is bag and (bag.what, state.number) == (0, 0)
            state.restore()
            assert bag.what == "restored"
        finally:
            registry.pop()
            set_handler_registry(horovods)


def case_elastic_attributes_are_the_objects_that_were_given():
    history, kind = [0], OtherScheduler
    state = hvd.elastic.TorchState(history=history, kind=kind, step=0)
    assert state.history is history and state.kind is kind and not state.is_counted("history")
    history.append(1)
    assert state.is_counted("history")
    for _ in range(2):
        state.restore()
        assert state.history == [0] and not state.is_counted("history")
        state.history.append(2)
    state.commit()
    state.history.append(3)
    state.restore()
    assert state.history == [0, 2] and history == [0, 1]


def case_elastic_sampler():
    for shuffle in (True, False):
        sampler = hvd.elastic.ElasticSampler(list(range(11)), shuffle=shuffle, seed=3)
        seen = [i for part in hvd.allgather_object(list(sampler)) for i in part]
        assert set(seen) == set(range(11)) and len(seen) == len(sampler) * SIZE and len(seen) < 11 + SIZE
        sampler.record_batch(0, 2)
        saved = sampler.state_dict()
        sampler.reset()
        first = {i for part in hvd.allgather_object(list(sampler)) for i in part}
        assert len(first) == max(11 - 2 * SIZE, 0)
        again = hvd.elastic.ElasticSampler(list(range(11)), shuffle=shuffle, seed=3)
        again.load_state_dict(saved)
        assert list(again) == list(sampler)
        sampler.set_epoch(1)
        assert len(sampler) == -(-11 // SIZE) and sampler.processed_num == 0
    few = hvd.elastic.ElasticSampler([0])
    assert list(few) == [0] and len(few) == 1


def case_elastic_samplers_of_ranks_with_batches_of_different_sizes():
    samplers = [hvd.elastic.ElasticSampler(range(count)) for count in (1000, 500)]
    state = hvd.elastic.TorchState(first=samplers[0], second=samplers[1])
    samplers[0].record_batch(0, RANK + 1)
    samplers[1].record_batch(0, 2 * RANK)
    state.commit()
    for sampler, done in zip(samplers, (SIZE * (SIZE + 1) // 2, SIZE * (SIZE - 1))):
        sampler.record_batch(1, 3)  # is lost
        state.restore()
        assert sampler.processed_num == done
        left = {index for part in hvd.allgather_object(list(sampler)) for index in part}
        assert len(left) == len(sampler.dataset) - done


# ---- training equals one process's ----


def train(make, distributed, passes=1, **options):
    torch.manual_seed(11)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    optimizer = make(model.parameters())
    if distributed:
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        optimizer = hvd.DistributedOptimizer(
            optimizer, model.named_parameters(), backward_passes_per_step=passes, **options
        )
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        optimizer.zero_grad()
        for _ in range(passes):
            x = torch.randn(12, 6, generator=generator)
            y = x[:, :3].argmax(1)
            if distributed:
                part = 12 // SIZE
                x, y = x[RANK * part : (RANK + 1) * part], y[RANK * part : (RANK + 1) * part]
            F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def case_20_steps_equal_one_process():
    kinds = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        # The default eps would make the sign of gradients that are nearly 0 count fully.
        "adam": lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-3),
    }
    for name, make in kinds.items():
        for options in ({}, {"passes": 4}, {"groups": 2}, {"passes": 4, "groups": 1}):
            expected = train(make, False, passes=options.get("passes", 1))
            result = train(make, True, **options)
            worst = ((result - expected).norm() / expected.norm()).item()
            assert worst <= 1e-6, f"{name} {options}: relative difference {worst}"
            assert all(torch.equal(t, result) for t in hvd.allgather(result.unsqueeze(0)))


if __name__ == "__main__":
    run_cases(dict(globals()), hvd.barrier)
    hvd.shutdown()
