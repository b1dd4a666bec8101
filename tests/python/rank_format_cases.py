"""Gradients that are not contiguous, as those of a model in torch.channels_last; runs as a rank (test_multi.py), on any number
of ranks.
"""

import itertools

import torch
from rank_side import raises, run_cases
from torch_training import within_backward

import horovod.torch as hvd
from horovod.torch import _gradients

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def wrapped(model, **options):
    return hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), **options)


def flat_model(memory_format=torch.channels_last):
    """Kernels with as many channels as rows and columns: no shape tells the order of such a one's elements."""
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 5, 1), torch.nn.Conv2d(5, 1, 2)
    ).to(memory_format=memory_format)


def flat_backward(model, seed=0):
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(SIZE * seed + RANK))
    model(x.to(memory_format=torch.channels_last)).square().mean().backward()


def solid_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Conv3d(2, 3, 2), torch.nn.Conv3d(3, 2, 1)).to(memory_format=torch.channels_last_3d)


def solid_backward(model, seed=0):
    x = torch.randn(2, 2, 4, 4, 4, generator=torch.Generator().manual_seed(SIZE * seed + RANK))
    model(x.to(memory_format=torch.channels_last_3d)).square().mean().backward()


def expected_of(model):
    """What the gradients that are not reduced yet come to; asked of contiguous copies, by other names."""
    return [hvd.allreduce(p.grad.clone(memory_format=torch.contiguous_format)) for p in model.parameters()]


def check(model, expected, tolerance=1e-5):
    for p, want in zip(model.parameters(), expected):
        torch.testing.assert_close(p.grad.contiguous(), want, rtol=tolerance, atol=tolerance)


def steps(tensor):
    """The strides; a dimension of 1 may have any."""
    return [stride for stride, size in zip(tensor.stride(), tensor.shape) if size > 1]


def twin(make, backward, seed):
    """The same model's gradients without an optimizer: what every rank makes itself, reduced as contiguous tensors."""
    model = make()
    backward(model, seed)
    return expected_of(model)


def case_a_model_in_channels_last():
    for make, backward in ((flat_model, flat_backward), (solid_model, solid_backward)):
        model = make()
        optimizer = wrapped(model)
        reducer = optimizer._hvd_reducer
        own = {}
        for p in model.parameters():
            p.register_hook(lambda grad, p=p: own.update({p: grad.clone(memory_format=torch.contiguous_format)}))
        for seed in range(3):
            with within_backward():
                backward(model, seed)
            # In their own memory: nothing is copied, and nothing is allocated.
            assert not reducer.common.special
            for p, gradient in reducer.gradients.items():
                assert gradient.grad is p.grad and list(gradient.plan.memory) == [p.grad.data_ptr()] * 2
                assert steps(p.grad) == steps(p)
            optimizer.synchronize()
            for p in model.parameters():
                expected = hvd.allreduce(own[p])
                # More ranks are added up in an order that depends on the place in the memory.
                assert SIZE > 2 or torch.equal(p.grad, expected)
                torch.testing.assert_close(p.grad.contiguous(), expected)
            optimizer.zero_grad()
        formats = [gradient.format for gradient in reducer.gradients.values()]
        assert SIZE == 1 or any(formats) and None in formats, formats


def case_groups_and_compression():
    expected = twin(flat_model, flat_backward, 0)
    for options, tolerance in (({"groups": 2}, 1e-5), ({"compression": hvd.Compression.fp16}, 1e-2)):
        model = flat_model()
        optimizer = wrapped(model, **options)
        for _ in range(2):
            flat_backward(model)
            optimizer.synchronize()
            check(model, expected, tolerance)
            optimizer.zero_grad()


def case_gradients_of_another_format_than_their_parameters():
    """On one rank, which copies them; the others know nothing of it."""
    for step in range(4):
        model = flat_model()
        optimizer = wrapped(model)
        flat_backward(model, step)
        optimizer.synchronize()  # plans are made
        own = flat_model()
        flat_backward(own, step)
        expected = expected_of(own)
        optimizer.zero_grad()
        for p, q in zip(model.parameters(), own.parameters()):
            p.grad = q.grad.contiguous() if RANK == step % SIZE else q.grad
        optimizer.synchronize()
        check(model, expected)
        assert RANK != step % SIZE or model[0].weight.grad.is_contiguous()


def case_a_gradient_that_is_missing():
    model = flat_model()
    expected = twin(flat_model, flat_backward, 0)
    optimizer = wrapped(model)
    for _ in range(2):
        if RANK == 0:
            flat_backward(model)
        optimizer.synchronize()
        whole = flat_model()
        if RANK == 0:
            flat_backward(whole)
        else:
            for p in whole.parameters():
                p.grad = torch.zeros_like(p)
        check(model, expected_of(whole))
        optimizer.zero_grad()
    assert len(expected) == 6


def case_a_model_whose_format_changes():
    expected = twin(flat_model, flat_backward, 0)
    model = flat_model(torch.contiguous_format)
    optimizer = wrapped(model)
    for memory_format in (torch.contiguous_format, torch.channels_last, torch.contiguous_format):
        model.to(memory_format=memory_format)
        flat_backward(model)
        optimizer.synchronize()
        check(model, expected, 1e-4)
        optimizer.zero_grad()


def case_ranks_with_models_of_different_formats_are_told():
    if SIZE == 1:
        return
    model = torch.nn.Conv2d(3, 3, 3, bias=False)
    if RANK == 0:
        model.to(memory_format=torch.channels_last)
    optimizer = wrapped(model)
    for _ in range(2):
        text = raises(hvd.HorovodInternalError, model(torch.ones(1, 3, 4, 4)).sum().backward)
        assert "shape" in text and "[3, 3, 3, 3, 1]" in text, text
        optimizer.zero_grad()
    model.to(memory_format=torch.channels_last)
    model(torch.ones(1, 3, 4, 4)).sum().backward()
    optimizer.synchronize()


def case_no_shape_that_travels_has_two_orders():
    orders = {}
    for ndim in range(1, 8):
        for sizes in itertools.product((1, 2, 3) if ndim < 6 else (1, 2), repeat=ndim):
            p = torch.empty(sizes)
            shape = tuple(_gradients._shape_that_travels(p.shape, _gradients._format_of(p)))
            assert orders.setdefault(shape, "contiguous") == "contiguous", shape
            if ndim in _gradients._FORMATS:
                memory_format, order = _gradients._FORMATS[ndim]
                p = p.to(memory_format=memory_format)
                found = _gradients._format_of(p)
                assert found is memory_format or p.is_contiguous()
                if found is not None:
                    shape = tuple(_gradients._shape_that_travels(p.permute(order).shape, found))
                    assert orders.setdefault(shape, order) == order, shape


if __name__ == "__main__":
    run_cases(dict(globals()), hvd.barrier)
    hvd.shutdown()
