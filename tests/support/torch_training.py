"""What cases that train with torch share: a small model, data for it, and a backward pass that has not ended."""

import contextlib

import torch

from horovod.torch import _collection

BATCH = 12  # over all ranks; divisible by 1, 2, 3, 4


def model_of(*widths, seed=5):
    torch.manual_seed(seed)
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(a, b), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def batches(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        x = torch.randn(BATCH, 6, generator=generator)
        yield x, (x[:, :3] > 0).float().argmax(1)


@contextlib.contextmanager
def within_backward():
    """Gradients of a backward pass in it are those in the middle of one."""
    real, _collection._at_end_of_backward = _collection._at_end_of_backward, lambda _: None
    try:
        yield
    finally:
        _collection._at_end_of_backward = real
