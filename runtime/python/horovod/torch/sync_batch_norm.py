"""SyncBatchNorm is batch normalisation over the batches of all ranks."""

from typing import Any, Optional, Tuple

import torch
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from horovod.common import _lib
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._allgather import allgather
from horovod.torch._allreduce import allreduce


class SyncBatchNorm(_BatchNorm):
    """SyncBatchNorm is a torch.nn.BatchNorm1d/2d/3d whose mean and variance in training are those of all ranks'
    batches.

    Batches may differ in size between ranks, and a rank's may be empty. Evaluation, and a job of one rank, are exactly
    torch's. Works on every device; 16-bit inputs are normalised with statistics in float32, also their gradients.
    Each forward and each backward of it in training is one collective operation, so that all ranks must run it alike.

    Args:
        num_features: C of an input of shape (N, C, ...).
        eps, momentum, affine, track_running_stats: as torch's.
        process_set: the ranks whose batches count.

    Raises (in forward):
        ValueError: an input of less than 2 dimensions, or all ranks together have one value per channel.
        HorovodInternalError: a rank or link is gone, or ranks have different numbers of channels; on every rank.
    """

    process_set: ProcessSet = global_process_set  # for modules that Horovod has pickled, which have no such attribute
    __jit_ignored_attributes__ = ["process_set"]  # torch.jit.script has no type for it

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected an input of at least 2 dimensions, got {input.dim()}")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        uses_batch = self.training or (self.running_mean is None and self.running_var is None)
        if uses_batch:
            return self._normalise_batch(input)
        return batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)

    @torch.jit.unused  # a scripted module can be evaluated
    def _normalise_batch(self, input: torch.Tensor) -> torch.Tensor:
        if self.process_set.size() == 1:
            return super().forward(input)
        if input.shape[1] != self.num_features:
            raise ValueError(f"expected {self.num_features} channels, got {input.shape[1]}")
        output, mean, variance, count = _SyncBatchNorm.apply(input, self.weight, self.bias, self.eps, self.process_set)
        if self.training and self.track_running_stats:
            self._track(mean, variance, count.item())
        return output

    def _track(self, mean: torch.Tensor, variance: torch.Tensor, count: float) -> None:
        with torch.no_grad():
            self.num_batches_tracked += 1
            factor = 1.0 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
            unbiased = variance * (count / (count - 1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)


def _channels(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Returns a value per channel, in the shape that goes with `like`."""
    return tensor.view(1, -1, *([1] * (like.dim() - 2)))


def _whole(tensor: torch.Tensor) -> Tuple[int, ...]:
    """Returns the dimensions that are averaged over."""
    return (0, *range(2, tensor.dim()))


class _SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input, weight, bias, eps, process_set):  # noqa: ANN001
        x = input.detach()
        exact = x if x.dtype in (torch.float32, torch.float64) else x.float()
        own_count = x.numel() // x.shape[1] if x.shape[1] else 0
        # The contribution of a rank, combined as in T. Chan, G. Golub, R. LeVeque, "Algorithms for computing the sample
        # variance" (1983): sums of squares would cancel.
        if own_count:
            own_mean = exact.mean(_whole(exact))
            own_squares = (exact - _channels(own_mean, exact)).square_().sum(_whole(exact))
        else:
            own_mean = exact.new_zeros(x.shape[1])
            own_squares = own_mean.clone()
        own = torch.cat([own_mean, own_squares, own_mean.new_tensor([own_count])])
        everyone = allgather(own.unsqueeze(0), name="sync_batch_norm.statistics", process_set=process_set)
        counts = everyone[:, -1:]
        means, squares = everyone[:, :-1].chunk(2, 1)
        count = counts.sum()
        if count.item() <= 1:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got {int(count.item())} on all ranks together"
            )
        mean = (means * counts).sum(0) / count
        variance = (squares + counts * (means - mean).square()).sum(0) / count
        scale = torch.rsqrt(variance + eps)
        normal = (exact - _channels(mean, exact)).mul_(_channels(scale, exact))
        output = normal
        if weight is not None:
            output = torch.addcmul(
                _channels(bias.detach().to(normal.dtype), normal), normal,
                _channels(weight.detach().to(normal.dtype), normal),
            )  # fmt: skip
        ctx.save_for_backward(input, weight, mean, scale, count)
        ctx.process_set = process_set
        ctx.mark_non_differentiable(mean, variance, count)
        return output.to(x.dtype), mean, variance, count

    @staticmethod
    @torch.autograd.function.once_differentiable  # the gradient of a gradient would lack the input's and the statistics' parts
    def backward(ctx: Any, gradient, *_):  # noqa: ANN001
        input, weight, mean, scale, count = ctx.saved_tensors
        exact = input.detach().to(mean.dtype)
        normal = (exact - _channels(mean, exact)).mul_(_channels(scale, exact))
        gradient = gradient.to(mean.dtype)
        own_sum = gradient.sum(_whole(gradient))
        own_dot = (gradient * normal).sum(_whole(gradient))
        input_gradient = None
        # Every rank takes part, even one that needs no gradient of the input, because others may need theirs.
        both = allreduce(
            torch.cat([own_sum, own_dot]),
            op=_lib.SUM, name="sync_batch_norm.gradients", process_set=ctx.process_set,
        )  # fmt: skip
        if ctx.needs_input_grad[0]:
            mean_sum, mean_dot = (both / count).chunk(2)
            factor = scale if weight is None else scale * weight.detach().to(scale.dtype)
            input_gradient = (
                (gradient - _channels(mean_sum, exact) - normal * _channels(mean_dot, exact))
                .mul_(_channels(factor, exact))
                .to(input.dtype)
            )
        # The parameters' gradients are this rank's own; DistributedOptimizer averages them like all others.
        weight_gradient = own_dot.to(weight.dtype) if ctx.needs_input_grad[1] else None
        bias_gradient = own_sum.to(weight.dtype) if ctx.needs_input_grad[2] else None
        return input_gradient, weight_gradient, bias_gradient, None, None
