"""The DistributedOptimizer cases; runs as a rank (test_multi.py), on any number of ranks."""

import copy
import gc
import warnings

import numpy
import torch
import torch.nn.functional as F
from rank_side import raises, run_cases
from torch_training import BATCH, batches, model_of

import horovod.torch as hvd
from horovod.common import _lib

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def make_model():
    return model_of(6, 16, 16, 3)


def my_part(tensor):
    part = BATCH // SIZE
    return tensor[RANK * part : (RANK + 1) * part]


def train(make_optimizer, distributed, steps=12, wrap=None, passes=1):
    """One model trained on the same data: by this process alone, or by all ranks together."""
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    if distributed:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        options = dict(wrap or {}, backward_passes_per_step=passes)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
    data = batches(steps * passes)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(passes):
            x, y = next(data)
            if distributed:
                x, y = my_part(x), my_part(y)
            F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def check_training(make_optimizer, tolerance=1e-5, reference=None, **options):
    result = train(make_optimizer, True, **options)
    others = hvd.allgather(result.unsqueeze(0))
    assert all(torch.equal(other, result) for other in others), "ranks differ"
    expected = train(reference or make_optimizer, False, passes=options.get("passes", 1))
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)


def sgd(parameters, lr=0.1):
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=0.01)


def case_sgd_equals_one_process():
    check_training(sgd)


def case_adam_equals_one_process():
    check_training(lambda p: torch.optim.Adam(p, lr=0.01), tolerance=1e-4)


def case_sum_equals_one_process_with_scaled_rate():
    plain = lambda lr: lambda p: torch.optim.SGD(p, lr=lr)  # noqa: E731
    check_training(plain(0.1 / SIZE), wrap={"op": hvd.Sum}, reference=plain(0.1))


def case_predivide():
    check_training(sgd, wrap={"gradient_predivide_factor": 4.0})


def case_compression():
    check_training(sgd, tolerance=2e-2, wrap={"compression": hvd.Compression.fp16})


def case_backward_passes_per_step():
    check_training(sgd, passes=3)


def wrapped(model=None, lr=0.1, **options):
    model = model or make_model()
    return model, hvd.DistributedOptimizer(sgd(model.parameters(), lr), model.named_parameters(), **options)


def one_backward(model, seed=9):
    x, y = next(batches(1, seed))
    loss = F.cross_entropy(model(my_part(x)), my_part(y))
    loss.backward()
    return loss


def case_looks_like_the_wrapped_optimizer():
    model = make_model()
    plain = sgd(model.parameters())
    early = torch.optim.lr_scheduler.StepLR(plain, 1)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD) and type(optimizer).__name__ == "SGD"
    assert optimizer.param_groups is plain.param_groups and "lr: 0.1" in repr(optimizer)
    late = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one_backward(model)
        optimizer.step()
        late.step()
    assert abs(optimizer.param_groups[0]["lr"] - 0.05) < 1e-9 and calls == [1]
    assert not optimizer._hvd_reducer.common.is_in_flight and early.last_epoch == 0
    saved = optimizer.state_dict()
    one_backward(model)
    optimizer.load_state_dict(saved)
    optimizer.zero_grad()
    raises(ValueError, hvd.DistributedOptimizer, optimizer)


def case_reduction_starts_during_backward():
    model, optimizer = wrapped()
    pending = []
    # The first layer's gradient comes last; by then the last layer's must be on its way.
    model[0].register_full_backward_hook(lambda *_: pending.append(len(optimizer._hvd_reducer.common.batch.addresses)))
    x, y = next(batches(1))
    F.cross_entropy(model(my_part(x).requires_grad_()), my_part(y)).backward()
    assert SIZE == 1 or pending[0] >= 2, pending
    optimizer.step()


def case_first_layers_go_first_of_what_is_ready():
    model, optimizer = wrapped()
    one_backward(model)
    optimizer.step()
    gradients = optimizer._hvd_reducer.gradients
    if SIZE == 1:
        assert not gradients  # nothing is reduced
        return
    priorities = [gradients[p].priority for p in model.parameters()]
    assert priorities == sorted(set(priorities), reverse=True), priorities
    assert all(g.plan.op.priority == g.priority for g in gradients.values())


def case_zero_grad():
    model, optimizer = wrapped()
    one_backward(model)
    optimizer.zero_grad()  # gradients are complete
    one_backward(model)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())
    optimizer.zero_grad(set_to_none=True)
    assert all(p.grad is None for p in model.parameters())


def case_passes_count_anew_where_some_are_thrown_away():
    gradients = []
    for throws_away in (False, True):
        model, optimizer = wrapped(backward_passes_per_step=2, op=hvd.Sum)
        if throws_away:
            one_backward(model, seed=3)
            optimizer.zero_grad()
        for _ in range(2):
            one_backward(model)
        gradients.append([p.grad.clone() for p in model.parameters()])
        optimizer.step()
    for expected, found in zip(*gradients):
        torch.testing.assert_close(found, expected)


def case_a_second_backward_adds_up():
    model, optimizer = wrapped()
    one_backward(model)
    once = [p.grad.clone() for p in model.parameters()]
    one_backward(model)
    for p, grad in zip(model.parameters(), once):
        torch.testing.assert_close(p.grad, 2 * grad)
    optimizer.zero_grad()


def case_several_backward_passes_before_a_step_with_and_without_groups():
    for groups in (0, 2):
        model = make_model()
        options = {"groups": groups} if groups else {}
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters(), 0.0), model.named_parameters(), **options)
        for _ in range(3):
            optimizer.zero_grad()
            for _ in range(3):
                one_backward(model)
            thrice = [p.grad.clone() for p in model.parameters()]
            optimizer.step()
            optimizer.zero_grad()
            one_backward(model)
            for p, grad in zip(model.parameters(), thrice):
                torch.testing.assert_close(3 * p.grad, grad)
            optimizer.step()


def case_two_optimizers_of_the_same_parameters_do_not_mix_their_reductions():
    model, first = wrapped()
    second = hvd.DistributedOptimizer(sgd(model.parameters(), 0.0))
    one_backward(model)
    once = [p.grad.clone() for p in model.parameters()]
    for optimizer in (second, first, second):
        for _ in range(5):
            model.zero_grad()
            optimizer.zero_grad()
            one_backward(model)
            optimizer.synchronize()
            for p, grad in zip(model.parameters(), once):
                assert torch.equal(p.grad, grad)


def case_clipping():
    model, optimizer = wrapped()
    one_backward(model)
    optimizer.synchronize()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    assert all(torch.equal(n, norm) for n in hvd.allgather(norm.unsqueeze(0)))
    before = [p.grad.clone() for p in model.parameters()]
    with optimizer.skip_synchronize():
        optimizer.step()
    assert all(torch.equal(a, p.grad) for a, p in zip(before, model.parameters()))
    one_backward(model)
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    assert any("skip_synchronize" in str(w.message) for w in caught)


def case_parameters_without_gradient():
    """Each rank uses another branch; what a rank does not use counts as zeros."""
    branches = torch.nn.ModuleList(torch.nn.Linear(2, 2, bias=False) for _ in range(SIZE + 1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(branches.parameters(), lr=1.0), branches.named_parameters())
    branches[RANK](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    if SIZE > 1:
        for branch in branches[:SIZE]:
            torch.testing.assert_close(branch.weight.grad, torch.full((2, 2), 1.0 / SIZE))
        assert not branches[SIZE].weight.grad.any()


def case_frozen_unfrozen_and_added():
    model = make_model()
    model[0].requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(sgd(model[:3].parameters()))
    model[4].weight.grad = None
    changes = [
        lambda: None,
        lambda: model[0].requires_grad_(True),
        lambda: optimizer.add_param_group({"params": list(model[4].parameters())}),
        lambda: model[2].requires_grad_(False),
    ]
    for change in changes:
        change()
        optimizer.zero_grad()
        model[4].zero_grad()
        one_backward(model, seed=RANK)
        optimizer.step()
        for group in optimizer.param_groups:
            for p in group["params"]:
                assert all(torch.equal(t, p) for t in hvd.allgather(p.detach().unsqueeze(0)))
    assert model[2].weight.grad is None and model[0].weight.grad is not None


def case_parameters_that_come_between_backward_and_step_are_reduced():
    for options in ({}, {"op": hvd.Sum}):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(sgd(model[:3].parameters()), **options)
        one_backward(model, seed=RANK)
        optimizer.add_param_group({"params": list(model[4].parameters())})
        optimizer.step()
        for p in model.parameters():
            assert all(torch.equal(t, p) for t in hvd.allgather(p.detach().unsqueeze(0)))


def case_closure():
    model, optimizer = wrapped()
    reference = make_model()
    plain = sgd(reference.parameters())

    def closure():
        optimizer.zero_grad()
        return one_backward(model)

    def plain_closure():
        plain.zero_grad()
        x, y = next(batches(1, 9))
        loss = F.cross_entropy(reference(x), y)
        loss.backward()
        return loss

    for _ in range(3):
        assert optimizer.step(closure) is not None
        plain.step(plain_closure)
    for p, q in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def case_another_optimizer_for_the_same_model():
    model, optimizer = wrapped()
    one_backward(model)
    optimizer.step()
    optimizer.zero_grad()
    del optimizer
    gc.collect()
    _, optimizer = wrapped(model)
    one_backward(model)
    optimizer.step()


def case_deepcopy():
    pair = wrapped()
    one_backward(pair[0])
    pair[1].step()
    model, optimizer = copy.deepcopy(pair)
    optimizer.zero_grad()
    one_backward(model, seed=RANK)
    optimizer.step()
    assert all(torch.equal(t, model[0].weight) for t in hvd.allgather(model[0].weight.detach().unsqueeze(0)))
    assert not torch.equal(model[0].weight, pair[0][0].weight)


def case_wrong_arguments():
    model = make_model()
    plain = sgd(model.parameters())
    names = list(model.named_parameters())
    raises(ValueError, hvd.DistributedOptimizer, plain, model.parameters())
    raises(ValueError, hvd.DistributedOptimizer, plain, names + [names[0]])
    assert "shape [3]" in raises(ValueError, hvd.DistributedOptimizer, plain, names[:-1])
    raises(ValueError, hvd.DistributedOptimizer, plain, backward_passes_per_step=0)
    raises(ValueError, hvd.DistributedOptimizer, plain, op=hvd.Sum, gradient_predivide_factor=2.0)
    for groups in (-1, True, "2", [names[0][1]], [[3]], [[names[0][1]], [names[0][1]]]):
        assert "roups" in raises(ValueError, hvd.DistributedOptimizer, plain, groups=groups)
    assert "add_process_set" in raises(ValueError, hvd.DistributedOptimizer, plain, process_set=hvd.ProcessSet([0]))


# ---- groups ----


def case_a_process_set_that_is_removed_and_added_again():
    """It has another number then."""
    if SIZE == 1:
        return  # all ranks are its only set
    ranks = list(range(SIZE - 1))
    process_set = hvd.add_process_set(ranks)
    optimizer = None
    if process_set.included():
        model = make_model()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), process_set=process_set)
    for clears_first in (True, False, False, True):
        if optimizer is not None:
            if clears_first:
                optimizer.zero_grad()
            model(torch.full((1, 6), float(RANK))).sum().backward()
            optimizer.step()
            if not clears_first:
                optimizer.zero_grad()
            shared = torch.cat([p.detach().flatten() for p in model.parameters()])
            assert all(torch.equal(one, shared) for one in hvd.allgather(shared.unsqueeze(0), process_set=process_set))
        hvd.remove_process_set(process_set)
        hvd.add_process_set(process_set)
    hvd.remove_process_set(process_set)


def case_groups_equal_one_process():
    for groups in (1, 2, numpy.int64(2), 100):
        check_training(sgd, wrap={"groups": groups})
        check_training(sgd, wrap={"groups": groups, "gradient_predivide_factor": 2.0}, passes=2)
    check_training(sgd, tolerance=2e-2, wrap={"groups": 2, "compression": hvd.Compression.bf16})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_training(sgd, wrap={"num_groups": 3})
    assert any("num_groups" in str(w.message) for w in caught)


def case_groups_by_list():
    model = make_model()
    weights = [p for p in model.parameters() if p.dim() == 2]
    model, optimizer = wrapped(model, groups=[weights, [model[0].bias, torch.ones(1)], []])
    reducer = optimizer._hvd_reducer
    for seed in (1, 2):
        optimizer.zero_grad()
        x, y = next(batches(1, seed))
        loss = F.cross_entropy(model(my_part(x)), my_part(y))
        optimizer.synchronize() if seed == 2 else None  # zeros first: groups are complete without backward
        optimizer.zero_grad()
        loss.backward()
        assert SIZE == 1 or reducer.common.is_synchronized and len(reducer.gradients) == 6
        own = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
        for p, expected in zip(model.parameters(), own):
            torch.testing.assert_close(p.grad, expected, rtol=1e-4, atol=1e-6)
        with optimizer.skip_synchronize():
            optimizer.step()


def case_group_of_which_a_part_is_missing():
    """Each rank uses another branch, all in one group; one branch is frozen later."""
    branches = torch.nn.ModuleList(torch.nn.Linear(2, 2, bias=False) for _ in range(SIZE + 1))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(branches.parameters(), lr=1.0), branches.named_parameters(), groups=1
    )
    for _ in range(2):
        branches[RANK](torch.ones(1, 2)).sum().backward()
        optimizer.step()
        if SIZE > 1:
            for branch in branches[:SIZE]:
                torch.testing.assert_close(branch.weight.grad, torch.full((2, 2), 1.0 / SIZE))
        optimizer.zero_grad()
        branches[SIZE].requires_grad_(False)


def case_one_call_of_the_library_for_a_gradient():
    for groups, calls in ((None, {"_enqueue_many": 1, "finish": 1}), (1, {"_enqueue_group": 1, "finish": 1})):
        model, optimizer = wrapped(groups=groups)
        one_backward(model)
        optimizer.step()
        optimizer.zero_grad()
        counts = {}

        def counted(name, function):
            def call(*arguments):
                counts[name] = counts.get(name, 0) + 1
                return function(*arguments)

            return call

        real = _lib._enqueue_many, _lib._enqueue_group, _lib.HandleArray.finish
        try:
            _lib._enqueue_many = counted("_enqueue_many", real[0])
            _lib._enqueue_group = counted("_enqueue_group", real[1])
            _lib.HandleArray.finish = counted("finish", real[2])
            one_backward(model)
            optimizer.step()
        finally:
            _lib._enqueue_many, _lib._enqueue_group, _lib.HandleArray.finish = real
        assert counts == (calls if SIZE > 1 else {}), counts


# ---- sparse gradients ----


def _sparse_training(**options):
    torch.manual_seed(2)
    embedding = torch.nn.Embedding(10, 3, sparse=options.pop("sparse", True))
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.5)
    distributed = options.pop("distributed", True)
    if distributed:
        optimizer = hvd.DistributedOptimizer(optimizer, embedding.named_parameters(), **options)
    words = torch.arange(BATCH) % 7
    for _ in range(3):
        optimizer.zero_grad()
        (embedding(my_part(words) if distributed else words) ** 2).mean().backward()
        optimizer.step()
        assert not options or embedding.weight.grad.is_sparse
    return embedding.weight.detach()


def case_sparse_gradients():
    expected = _sparse_training(distributed=False, sparse=False)
    for options in ({}, {"sparse_as_dense": True}, {"gradient_predivide_factor": 2.0}):
        torch.testing.assert_close(_sparse_training(**options), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(_sparse_training(compression=hvd.Compression.fp16), expected, rtol=1e-2, atol=1e-2)


def case_sparse_gradient_in_a_group_is_refused():
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    pair = torch.nn.ModuleList([embedding, torch.nn.Linear(2, 1)])
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(pair.parameters(), lr=1.0), pair.named_parameters(), groups=1
    )
    loss = pair[1](embedding(torch.tensor([1]))).sum()
    if SIZE > 1:
        assert "sparse" in raises(ValueError, loss.backward)
        optimizer.load_state_dict(optimizer.state_dict())
    assert torch.equal(hvd.allreduce(torch.ones(1)), torch.ones(1))


def case_sparse_parameter_that_one_rank_does_not_use():
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    torch.nn.init.ones_(embedding.weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=1.0), embedding.named_parameters())
    for step in range(2):
        optimizer.zero_grad()
        if step == 0 or RANK == 0:
            embedding(torch.tensor([RANK % 4])).sum().backward()
        optimizer.step()
    assert all(torch.equal(t, embedding.weight) for t in hvd.allgather(embedding.weight.detach().unsqueeze(0)))


def case_a_scheduler_that_was_made_before_the_wrapping_resumes():
    model = model_of(6, 3)
    plain = sgd(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.1)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    optimizer.load_state_dict(optimizer.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it must see the steps
        for _ in range(2):
            model(torch.ones(1, 6)).sum().backward()
            optimizer.step()
            scheduler.step()
    assert abs(optimizer.param_groups[0]["lr"] - 0.001) < 1e-9, optimizer.param_groups[0]["lr"]
    assert plain.state is optimizer.state and len(optimizer.state) == 2


def case_a_scheduler_that_was_made_before_the_wrapping_knows_of_the_steps():
    for op in (hvd.Average, hvd.Adasum):
        model = model_of(6, 3)
        plain = sgd(model.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.1)
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), op=op)
        model(torch.ones(1, 6)).sum().backward()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.step()
            scheduler.step()
        del plain, scheduler
        optimizer.step()
    early = sgd(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(early, 1)
    hvd.DistributedOptimizer(early, model.named_parameters())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scheduler.step()
    assert any("lr_scheduler.step()" in str(warning.message) for warning in caught), "where there was no step"


if __name__ == "__main__":
    run_cases(dict(globals()), hvd.barrier)
    hvd.shutdown()
