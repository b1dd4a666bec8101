"""Plain PyTorch scripts, without a word of Horovod's but the wrapping: parameters are equal on all ranks, and those of one process
that has all the data. Runs as a rank (test_multi.py), on any number of ranks."""

import copy
import warnings

import cloudpickle
import torch
import torch.nn.functional as F
from rank_side import is_torch, raises, run_cases
from torch_training import BATCH, batches, model_of

import horovod.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def wrap(optimizer, model=None, **options):
    return hvd.DistributedOptimizer(optimizer, model.named_parameters() if model is not None else None, **options)


def part_of(tensor, is_mine):
    rows = BATCH // SIZE
    return tensor[RANK * rows : (RANK + 1) * rows] if is_mine else tensor


def parameters_of(*modules):
    return torch.cat([p.detach().flatten().double() for module in modules for p in module.parameters()])


def check(script, tolerance=1e-5):
    """`script(is_mine, wrap)` trains, and returns the parameters."""
    result = script(True, wrap)
    others = hvd.allgather(result.unsqueeze(0))
    assert all(torch.equal(other, result) for other in others), f"ranks differ by {(others - result).abs().max()}"
    expected = script(False, lambda optimizer, *_, **__: optimizer)
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def case_clipping():
    def script(is_mine, wrap):
        model = model_of(6, 16, 3)
        optimizer = wrap(sgd(model), model)
        for x, y in batches(12):
            optimizer.zero_grad()
            F.cross_entropy(model(part_of(x, is_mine)), part_of(y, is_mine)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
        return parameters_of(model)

    check(script)


def case_mixed_precision():
    """With scales that are too large at first, so that steps are left out."""
    if not is_torch(2, 3):
        return

    def script(is_mine, wrap):
        model = model_of(6, 16, 3)
        optimizer = wrap(sgd(model), model)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=3)
        for number, (x, y) in enumerate(batches(12)):
            optimizer.zero_grad()
            scaler.scale(4 * F.cross_entropy(model(part_of(x, is_mine)), part_of(y, is_mine))).backward()
            if number % 2:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() < 2.0**127
        return parameters_of(model)

    check(script)


def case_accumulation():
    """Of passes that nobody has announced, with a gradient clipped in between."""

    def script(is_mine, wrap):
        model = model_of(6, 16, 3)
        optimizer = wrap(sgd(model), model)
        data = list(batches(12))
        for number, (x, y) in enumerate(data):
            (F.cross_entropy(model(part_of(x, is_mine)), part_of(y, is_mine)) / 3).backward()
            if number % 3 == 2:
                torch.nn.utils.clip_grad_value_(model.parameters(), 0.05)
                optimizer.step()
                optimizer.zero_grad()
        return parameters_of(model)

    check(script)


def case_two_losses_of_different_layers():
    def script(is_mine, wrap):
        model = torch.nn.ModuleDict({"a": model_of(6, 3), "b": model_of(6, 3, seed=6), "c": model_of(6, 3, seed=7)})
        optimizer = wrap(sgd(model), model)
        for x, y in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(model["a"](part_of(x, is_mine)), part_of(y, is_mine)).backward()
            logits = model["b"](part_of(x, is_mine)) + model["a"](part_of(x, is_mine))
            F.cross_entropy(logits + 0 * model["c"](part_of(x, is_mine)), part_of(y, is_mine)).backward()
            optimizer.step()
        return parameters_of(model)

    check(script)


def case_two_losses_of_different_layers_in_several_passes():
    """Each layer is reduced at its own last pass, and what a backward pass returns is reduced then."""
    for op in (hvd.Sum, hvd.Average):
        model = torch.nn.ModuleList([model_of(6, 3), model_of(6, 3, seed=6)])
        optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, op=op, backward_passes_per_step=2)
        for _ in range(2):
            optimizer.zero_grad()
            before = parameters_of(model)
            for _ in range(2):
                for layer in model:
                    ((RANK + 1.0) * sum(p.sum() for p in layer.parameters())).backward()
            share = sum(range(1, SIZE + 1)) * (1 if op == hvd.Sum else 1 / SIZE)
            for p in model.parameters():
                torch.testing.assert_close(p.grad, torch.full_like(p, 2 * share))
            optimizer.step()
            torch.testing.assert_close(parameters_of(model), before - 0.2 * share)


def case_sums_of_two_losses_of_different_layers():
    def script(is_mine, wrap):
        model = torch.nn.ModuleList([model_of(6, 3), model_of(6, 3, seed=6)])
        optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, op=hvd.Sum)
        for x, y in batches(3):
            optimizer.zero_grad()
            for layer in model:
                F.cross_entropy(layer(part_of(x, is_mine)), part_of(y, is_mine), reduction="sum").backward()
            optimizer.step()
        return parameters_of(model)

    check(script)


def case_an_optimizer_takes_its_parameters_back_from_one_that_is_gone():
    model = model_of(6, 3)
    optimizer = wrap(sgd(model), model)
    later = wrap(sgd(model), model)
    del later
    optimizer.zero_grad()
    model(torch.full((1, 6), 1.0 + RANK)).sum().backward()
    grads = model[0].weight.grad.clone()
    assert all(torch.equal(grads, other) for other in hvd.allgather(grads.unsqueeze(0))), "reduced before the step"
    optimizer.step()


def case_a_wrapped_optimizers_own_getattr():
    class Outer(torch.optim.SGD):
        def __getattr__(self, name):
            if name == "of_the_inner":
                return 7
            raise AttributeError(name)

    optimizer = wrap(Outer(model_of(6, 3).parameters(), lr=0.1))
    assert optimizer.of_the_inner == 7 and optimizer.op == hvd.Average
    assert not hasattr(optimizer, "nonsense")


def case_a_resumed_fused_optimizer_of_channels_last():
    torch.manual_seed(3)
    model = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
    try:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
        x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
        if RANK == 0:
            model(x).square().sum().backward()
            optimizer.step()
    except RuntimeError:  # before PyTorch 2.4 there is none for the host
        return
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert optimizer.state[model.weight]["exp_avg"].stride() == model.weight.stride()
    optimizer = wrap(optimizer, model)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    weights = parameters_of(model)
    assert all(torch.equal(weights, other) for other in hvd.allgather(weights.unsqueeze(0)))


def case_line_search():
    def script(is_mine, wrap, **options):
        model = model_of(6, 8, 3).double()
        optimizer = wrap(torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=12, **options), model)
        x, y = next(batches(1))
        x = x.double()
        losses = []
        for _ in range(3):

            def closure():
                optimizer.zero_grad()
                loss = F.cross_entropy(model(part_of(x, is_mine)), part_of(y, is_mine))
                loss.backward()
                losses.append(1)
                return loss

            optimizer.step(closure)
        counts = hvd.allgather_object(len(losses)) if is_mine else []
        assert len(set(counts)) <= 1, f"runs of the closure: {counts}"
        return parameters_of(model)

    check(lambda *a: script(*a, line_search_fn="strong_wolfe"))
    check(script)


def case_the_loss_of_a_closure_is_that_of_all_ranks():
    model = model_of(6, 3)
    optimizer = wrap(sgd(model), model)
    x, y = next(batches(1))

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(part_of(x, True)), part_of(y, True))
        loss.backward()
        return loss

    expected = F.cross_entropy(model(x), y)
    torch.testing.assert_close(optimizer.step(closure), expected.detach())
    mean = sum(range(SIZE)) / SIZE
    assert optimizer.step(lambda: float(RANK)) == mean
    summed = wrap(sgd(model), model, op=hvd.Sum)
    assert summed.step(lambda: float(RANK)) == sum(range(SIZE))
    assert optimizer.step(lambda: None) is None and optimizer.step(lambda: "rank") == "rank"


def case_a_closure_without_a_backward_pass_steps_with_the_gradients_that_are_there():
    model = model_of(6, 3)
    optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, op=hvd.Sum)
    before = parameters_of(model)
    ((RANK + 1.0) * sum(p.sum() for p in model.parameters())).backward()
    optimizer.step(lambda: 0.0)
    torch.testing.assert_close(parameters_of(model), before - 0.1 * sum(range(1, SIZE + 1)))


def case_two_optimizers_that_play_against_each_other():
    """Without names; a generator's loss goes through the discriminator, whose gradients are thrown away."""

    def script(is_mine, wrap):
        generator, critic = model_of(6, 8, 6), model_of(6, 8, 1, seed=8)
        first, second = wrap(sgd(generator)), wrap(sgd(critic))
        for x, _ in batches(6):
            x = part_of(x, is_mine)
            second.zero_grad()
            F.softplus(-critic(x)).mean().backward()
            F.softplus(critic(generator(x).detach())).mean().backward()
            second.step()
            first.zero_grad()
            F.softplus(-critic(generator(x))).mean().backward()
            torch.nn.utils.clip_grad_norm_(generator.parameters(), 0.1)
            first.step()
        return parameters_of(generator, critic)

    check(script)


def case_two_optimizers_whose_layers_have_the_same_names():
    """Both are of a torch.nn.Sequential, and a backward pass makes gradients of both."""

    def script(is_mine, wrap):
        generator, critic = model_of(6, 8, 6), model_of(6, 8, 1, seed=8)
        first, second = wrap(sgd(generator), generator), wrap(sgd(critic), critic)
        for x, _ in batches(4):
            x = part_of(x, is_mine)
            critic.zero_grad()
            (F.softplus(-critic(x)) + F.softplus(critic(generator(x).detach()))).mean().backward()
            second.step()
            generator.zero_grad()
            F.softplus(-critic(generator(x))).mean().backward()
            first.step()
        return parameters_of(generator, critic)

    check(script)


def case_an_optimizer_for_each_layer():
    def script(is_mine, wrap):
        model = model_of(6, 8, 8, 3)
        optimizers = [wrap(sgd(layer), layer) for layer in model if list(layer.parameters())]
        for x, y in batches(4):
            F.cross_entropy(model(part_of(x, is_mine)), part_of(y, is_mine)).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        return parameters_of(model)

    check(script)


def travelling(optimizer):
    return list(optimizer._hvd_travelling.values())


def case_names_do_not_grow_with_optimizers_of_one_model():
    """And a copy that one rank makes, or reads from a file, counts for nothing."""

    def named(layer):
        return hvd.DistributedOptimizer(sgd(layer), layer.named_parameters(prefix="grow"))

    one, other, third = (torch.nn.Linear(2, 1) for _ in range(3))
    for _ in range(3):
        assert travelling(named(one)) == ["grow.weight", "grow.bias"]
        assert travelling(named(other)) == ["grow.weight#2", "grow.bias#2"]
    optimizer = named(other)
    assert list(optimizer._parameter_names.values()) == ["grow.weight", "grow.bias"]
    if RANK == 0:
        _, copied = copy.deepcopy((other, optimizer))
        assert travelling(copied) == travelling(optimizer)
        assert travelling(cloudpickle.loads(cloudpickle.dumps(copied))) == travelling(optimizer)
    assert travelling(named(third)) == ["grow.weight#3", "grow.bias#3"]
    unnamed = wrap(sgd(one))
    assert travelling(unnamed) == [name.replace("noname", "unnamed") for name in unnamed._parameter_names.values()]
    optimizer.add_param_group({"params": list(third.parameters())})
    assert len(set(travelling(optimizer))) == 4


def case_parameters_that_a_script_puts_into_the_groups():
    for is_named in (True, False):
        first, second = torch.nn.Linear(6, 4), torch.nn.Linear(4, 1)
        for module in (first, second):
            hvd.broadcast_parameters(module.state_dict(), 0)
        optimizer = wrap(sgd(first), first if is_named else None)
        optimizer.param_groups[0]["params"] += list(second.parameters())
        before = parameters_of(second)
        for _ in range(2):
            second(first(torch.full((1, 6), RANK + 1.0))).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        weights = parameters_of(first, second)
        assert all(torch.equal(weights, other) for other in hvd.allgather(weights.unsqueeze(0)))
        assert not torch.equal(parameters_of(second), before)


def case_two_optimizers_of_one_backward():
    """Whose gradients come in another order on another rank, which takes another way through them, too."""
    left, right = (torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(2)) for _ in range(2))
    for module in (left, right):
        hvd.broadcast_parameters(module.state_dict(), 0)
    optimizers = [wrap(sgd(left)), wrap(sgd(right))]
    for turn in range(4):
        x = torch.ones(2, 6)
        first, second = (left, right) if (RANK + turn) % 2 else (right, left)
        second[RANK % 2](first[turn % 2](x)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    weights = parameters_of(left, right)
    assert all(torch.equal(weights, other) for other in hvd.allgather(weights.unsqueeze(0)))


def case_compiled_step():
    """In whole, with a batch of another size, for which the compiler makes shapes symbols."""

    def script(is_mine, wrap):
        model = model_of(6, 16, 3)
        optimizer = wrap(sgd(model), model)

        @torch.compile(backend="aot_eager")
        def step(x, y):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

        for number, (x, y) in enumerate(batches(6)):
            rows = (12, 12, 24, 24, 36, 36)[number]
            x, y = x.repeat(3, 1)[:rows], y.repeat(3)[:rows]
            share = rows // SIZE if is_mine else rows
            mine = slice(RANK * share, (RANK + 1) * share) if is_mine else slice(None)
            step(x[mine], y[mine])
        return parameters_of(model)

    if SIZE <= 2 and is_torch(2, 5):  # the compiler takes its time, and earlier ones fail on a whole step
        check(script)


def case_sums_are_not_added_to():
    model = model_of(6, 3)
    optimizer = wrap(sgd(model), model, op=hvd.Sum)
    model(torch.ones(1, 6)).sum().backward()
    if SIZE > 1:
        assert "backward_passes_per_step" in raises(AssertionError, lambda: model(torch.ones(1, 6)).sum().backward())
    optimizer.zero_grad()
    model(torch.ones(1, 6)).sum().backward()
    optimizer.step()


def case_sums_after_a_step_that_was_left_out():
    """Cleared by something else than the optimizer."""

    def clear(model):
        for p in model.parameters():
            p.grad = None

    def script(clear, is_mine, wrap):
        model = model_of(6, 8, 3)
        optimizer = wrap(sgd(model), model, op=hvd.Sum)
        for number, (x, y) in enumerate(batches(6)):
            clear(model)
            (F.cross_entropy(model(part_of(x, is_mine)), part_of(y, is_mine), reduction="sum") / BATCH).backward()
            if number % 3 != 1:
                optimizer.step()
        return parameters_of(model)

    check(lambda *a: script(clear, *a))
    check(lambda *a: script(lambda model: model.zero_grad(set_to_none=True), *a))
    check(lambda *a: script(lambda model: model.zero_grad(set_to_none=False), *a))


def case_sums_after_gradients_were_set_to_zero():
    """Of all parameters, also of one that the next backward pass does not reach; or of one, when others are still there."""
    model = model_of(6, 4, 3)
    optimizer = wrap(sgd(model), model, op=hvd.Sum)

    def backward(layers=model):
        layers(torch.ones(1, next(layers.parameters()).shape[1])).sum().backward()
        return [p.grad.clone() for p in layers.parameters()]

    first = backward()
    model.zero_grad(set_to_none=False)
    assert all(torch.equal(a, b) for a, b in zip(first, backward()))
    model.zero_grad(set_to_none=False)
    backward(model[2:])
    optimizer.synchronize()
    assert not any(p.grad.any() for p in model[0].parameters())
    optimizer.zero_grad()
    backward()
    model[0].zero_grad(set_to_none=False)
    if SIZE > 1:
        assert "optimizer.zero_grad()" in raises(AssertionError, backward)
    optimizer.zero_grad()


def case_sums_of_which_some_are_still_there():
    model = model_of(6, 4, 3)
    optimizer = wrap(sgd(model), model, op=hvd.Sum)

    def backward(layers=model, **options):
        width = next(layers.parameters()).shape[1]
        layers(torch.ones(1, width)).sum().backward(**options)

    def refused(function, *arguments, **options):
        if SIZE > 1:
            assert "optimizer.zero_grad()" in raises(AssertionError, function, *arguments, **options)

    backward()
    model[0].zero_grad()
    refused(backward)
    optimizer.zero_grad()
    backward()
    model[2].zero_grad()
    first = model[0].weight.grad.clone()
    backward(model[2:])  # adds nothing to the first layer's, which is not reduced again
    assert torch.equal(model[0].weight.grad, first)
    optimizer.zero_grad()
    backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that such a graph is kept
        refused(backward, create_graph=True)
    optimizer.zero_grad()
    backward()
    optimizer.step()


def case_sums_of_sparse_gradients_after_a_step_that_was_left_out():
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = wrap(torch.optim.SGD(embedding.parameters(), lr=1.0), embedding, op=hvd.Sum)
    for _ in range(3):
        embedding.zero_grad()
        embedding(torch.tensor([1])).sum().backward()
        assert embedding.weight.grad.to_dense()[1].tolist() == [SIZE, SIZE]
    optimizer.step()


def case_synchronize_has_nothing_to_do():
    model = model_of(6, 3)
    optimizer = wrap(sgd(model), model)
    for x, y in batches(2):
        F.cross_entropy(model(part_of(x, True)), part_of(y, True)).backward()
        before = [p.grad.clone() for p in model.parameters()]
        if RANK == 0 or SIZE == 1:
            optimizer.synchronize()  # alone: no other rank is needed
        assert all(torch.equal(p.grad, grad) for p, grad in zip(model.parameters(), before))
        with optimizer.skip_synchronize():
            optimizer.step()
        optimizer.zero_grad()


def case_passes_that_were_announced_are_reduced_once():
    model = model_of(6, 3)
    optimizer = wrap(sgd(model), model, backward_passes_per_step=2)
    for turn in range(2):
        own = []
        for x, y in batches(2, seed=RANK + turn):
            F.cross_entropy(model(x), y).backward()
            own.append([p.grad.clone() for p in model.parameters()])
        local = copy.deepcopy(model)
        local.zero_grad()
        for x, y in batches(2, seed=RANK + turn):
            F.cross_entropy(local(x), y).backward()
        first = copy.deepcopy(model)
        first.zero_grad()
        F.cross_entropy(first(x := next(batches(1, seed=RANK + turn))[0]), next(batches(1, seed=RANK + turn))[1]).backward()
        for i, (p, q, r) in enumerate(zip(model.parameters(), local.parameters(), first.parameters())):
            torch.testing.assert_close(own[0][i], r.grad, msg="reduced too early")
            torch.testing.assert_close(p.grad, hvd.allreduce(q.grad))
        optimizer.step()
        optimizer.zero_grad()


class Nested(torch.autograd.Function):
    """Reentrant checkpointing, in small."""

    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        ctx.save_for_backward(x)
        with torch.no_grad():
            return module(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.module(x)
        torch.autograd.backward(y, gradient)
        return x.grad, None


def case_gradients_of_a_backward_within_another_one():
    """Nobody learns when all of them end, if only inner ones have gradients: then the step completes them, and a change before
    that is an error."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 6))
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = wrap(sgd(model), model)

    def backward():
        y = torch.full((1, 6), RANK + 1.0, requires_grad=True)
        for layer in model:
            y = Nested.apply(y, layer)
        y.square().mean().backward()

    backward()
    optimizer.step()
    weights = parameters_of(model)
    assert all(torch.equal(weights, other) for other in hvd.allgather(weights.unsqueeze(0)))
    optimizer.zero_grad()
    backward()
    if SIZE > 1:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        said = raises(RuntimeError, optimizer.step)
        assert "the gradient of" in said and "use_reentrant=False" in said, said
    optimizer.zero_grad()
    backward()
    optimizer.step()


if __name__ == "__main__":
    run_cases(dict(globals()), hvd.barrier)
    hvd.shutdown()
