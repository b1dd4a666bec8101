"""DistributedOptimizer: an optimizer whose step sees the gradients of all ranks."""

import contextlib
import os
import warnings
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import torch

from horovod.common.process_sets import ProcessSet, check_supported, global_process_set
from horovod.common.util import choose_op
from horovod.torch import mpi_ops
from horovod.torch._allreduce import allreduce_into
from horovod.torch.compression import Compression

_TWO_SYNCHRONIZATIONS = (
    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). The gradients "
    "are reduced already and are not reduced again; use skip_synchronize() if you call synchronize() yourself."
)


class _Settings:
    """What DistributedOptimizer was asked for; constant after construction but for backward_passes_per_step."""

    def __init__(self, compression: Any, passes: int, op: int, predivide_factor: float) -> None:
        self.compression = compression
        self.op = op
        # The library divides by the number of ranks itself; a predivide factor moves part of that before the sum.
        self.prescale = 1.0 / predivide_factor
        self.postscale = predivide_factor
        self.passes = passes


class _Reduction:
    """One gradient on its way."""

    __slots__ = ("handle", "grad", "ctx", "is_in_place")

    def __init__(self, handle: int, grad: torch.Tensor, ctx: Any, is_in_place: bool) -> None:
        self.handle = handle
        self.grad = grad
        self.ctx = ctx
        self.is_in_place = is_in_place


class _DistributedMixin:
    """Comes before the wrapped optimizer's class in the class that DistributedOptimizer makes."""

    def _hvd_setup(self, names: Dict[torch.Tensor, str], settings: _Settings) -> None:
        self._hvd_names = names
        self._hvd_settings = settings
        self._hvd_in_flight: Dict[torch.Tensor, _Reduction] = {}
        self._hvd_passes_left: Dict[torch.Tensor, int] = {}
        self._hvd_hooks: Dict[torch.Tensor, Any] = {}
        self._hvd_is_synchronized = False
        self._hvd_synchronizes_in_step = True
        # Alone there is nothing to reduce.
        self._hvd_reduces = mpi_ops.size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1"
        self._hvd_add_hooks()

    def _hvd_add_hooks(self) -> None:
        """Hooks every parameter that needs a gradient and has none yet: new groups and unfrozen ones come later."""
        if not self._hvd_reduces:
            return
        # Weak: a parameter outlives this optimizer when the script makes another one for it.
        method = weakref.WeakMethod(self._hvd_on_gradient)

        def on_gradient(p: torch.Tensor) -> None:
            alive = method()
            if alive is not None:
                alive(p)

        for group_index, group in enumerate(self.param_groups):
            for index, p in enumerate(group["params"]):
                if p.requires_grad and p not in self._hvd_hooks:
                    self._hvd_names.setdefault(p, f"allreduce.noname.{group_index}.{index}")
                    self._hvd_passes_left[p] = self._hvd_settings.passes
                    self._hvd_hooks[p] = p.register_post_accumulate_grad_hook(on_gradient)

    def _hvd_on_gradient(self, p: torch.Tensor) -> None:
        if self._hvd_passes_left[p] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
                "backward_passes_per_step to accumulate gradients locally."
            )
        self._hvd_is_synchronized = False
        self._hvd_passes_left[p] -= 1
        if self._hvd_passes_left[p] == 0:
            self._hvd_start(p)

    def _hvd_start(self, p: torch.Tensor) -> None:
        settings = self._hvd_settings
        grad = p.grad
        if grad.layout is not torch.strided:
            raise ValueError(
                f"the gradient of {self._hvd_names[p]} is sparse; sparse gradients are not supported yet: make the "
                "embedding with sparse=False"
            )
        compressed, ctx = settings.compression.compress(grad)
        handle = allreduce_into(
            compressed, compressed, self._hvd_names[p], settings.op, settings.prescale, settings.postscale
        )
        self._hvd_in_flight[p] = _Reduction(handle, grad, ctx, compressed is grad)

    def _hvd_finish(self, reduction: _Reduction) -> None:
        reduced = mpi_ops.synchronize(reduction.handle)
        if not reduction.is_in_place:
            with torch.no_grad():
                reduction.grad.copy_(self._hvd_settings.compression.decompress(reduced, reduction.ctx))

    def _hvd_finish_all(self) -> None:
        """Waits for all reductions, also when one fails, so that none still works on memory."""
        failure: Optional[Exception] = None
        while self._hvd_in_flight:
            p = next(iter(self._hvd_in_flight))
            try:
                self._hvd_finish(self._hvd_in_flight[p])
            except Exception as error:
                failure = failure or error
            del self._hvd_in_flight[p]
        for p in self._hvd_passes_left:
            self._hvd_passes_left[p] = self._hvd_settings.passes
        if failure is not None:
            raise failure

    def synchronize(self) -> None:
        """Waits until every gradient holds the reduction over all ranks.

        Gradients whose reduction has not started (the parameter took no part in this rank's backward pass, or fewer
        than backward_passes_per_step passes were made) are reduced now; a missing one counts as zeros, so that ranks
        whose models take different paths agree. Call it yourself before clipping gradients, and then step inside
        `skip_synchronize()`.

        Raises:
            HorovodInternalError: a reduction failed; on every rank. The gradients are in no defined state then.
        """
        if self._hvd_is_synchronized and not self._hvd_in_flight:
            return
        self._hvd_add_hooks()
        for p in self._hvd_hooks:
            if p in self._hvd_in_flight or (p.grad is None and not p.requires_grad):
                continue
            if p.grad is None:
                p.grad = torch.zeros_like(p, requires_grad=False)
            self._hvd_start(p)
        self._hvd_finish_all()
        self._hvd_is_synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside it, `step` does not synchronize:

        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()
        """
        self._hvd_synchronizes_in_step = False
        try:
            yield
        finally:
            self._hvd_synchronizes_in_step = True

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Synchronizes, then makes the wrapped optimizer's step, which is the same on every rank.

        A closure's gradients are reduced after each of its runs.
        """
        reduced_closure = closure
        if self._hvd_synchronizes_in_step:
            if closure is not None:

                def reduced_closure() -> Any:
                    loss = closure()
                    self.synchronize()
                    return loss

                if self._hvd_in_flight:
                    self.synchronize()
            else:
                if self._hvd_is_synchronized:
                    warnings.warn(_TWO_SYNCHRONIZATIONS, stacklevel=2)
                self.synchronize()
        self._hvd_is_synchronized = False
        result = super().step() if reduced_closure is None else super().step(reduced_closure)
        self._hvd_is_synchronized = False
        return result

    # torch wraps the step of each optimizer class to run step hooks and the profiler; the wrapped class's step, which
    # ours calls, has that already.
    step.hooked = True

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """The wrapped optimizer's zero_grad. AssertionError while reductions of the gradients are in flight."""
        if self._hvd_in_flight:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        self._hvd_is_synchronized = False
        super().zero_grad(*args, **kwargs)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes are summed locally before the reduction."""
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self._hvd_settings.passes = passes
        for p in self._hvd_passes_left:
            self._hvd_passes_left[p] = passes

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """The wrapped optimizer's add_param_group; the new parameters are reduced too."""
        super().add_param_group(param_group)
        self._hvd_add_hooks()

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """The wrapped optimizer's load_state_dict; reductions in flight are waited for and forgotten."""
        self._hvd_finish_all()
        self._hvd_is_synchronized = False
        super().load_state_dict(*args, **kwargs)

    def __getstate__(self) -> Dict[str, Any]:
        state = dict(super().__getstate__())
        names = [[self._hvd_names.get(p) for p in group["params"]] for group in self.param_groups]
        state["_hvd"] = (names, self._hvd_settings)
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        """A copy hooks its own parameters. (load_state_dict comes here too, without the "_hvd" part.)"""
        state = dict(state)
        ours = state.pop("_hvd", None)
        super().__setstate__(state)
        if ours is not None:
            names, settings = ours
            known = {
                p: name
                for group, group_names in zip(self.param_groups, names)
                for p, name in zip(group["params"], group_names)
                if name is not None
            }
            self._hvd_setup(known, settings)


def _names_of(
    optimizer: torch.optim.Optimizer, named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]]
) -> Dict[torch.Tensor, str]:
    """The checked name of each parameter; empty when none were given."""
    if named_parameters is None:
        return {}
    pairs: List[Tuple[str, torch.Tensor]] = list(named_parameters)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    names = [name for name, _ in pairs]
    duplicates = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if duplicates:
        raise ValueError(
            "Parameter names in named_parameters must be unique. Found duplicates: " + ", ".join(duplicates)
        )
    by_parameter = {p: name for name, p in pairs}
    unnamed = [
        f"parameter {index} of group {group_index}, shape {list(p.shape)}"
        for group_index, group in enumerate(optimizer.param_groups)
        for index, p in enumerate(group["params"])
        if p not in by_parameter
    ]
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named: " + "; ".join(unnamed)
        )
    return by_parameter


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]] = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = mpi_ops.Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Wraps an optimizer so that its step uses the gradients reduced over all ranks.

    The reduction of a gradient starts as soon as backward has it, while backward goes on with the others. The result is
    an object of a subclass of the optimizer's own class and shares its parameter groups and state; use it in place of
    the optimizer. Call `broadcast_parameters` first: equal parameters plus equal gradients stay equal, bit by bit.

    Args:
        optimizer: any torch optimizer, with the same parameters on every rank.
        named_parameters: `model.named_parameters()`; the names appear in messages. Needed where ranks may have their
            parameters in different orders.
        compression: `hvd.Compression.none` or `.fp16`.
        backward_passes_per_step: this many backward passes are summed on each rank, without division, before the
            reduction.
        op: hvd.Average or hvd.Sum (also Min, Max, Product).
        gradient_predivide_factor: f splits the averaging: gradients are multiplied by 1/f before the sum and by f/size
            after it. Only with op=hvd.Average.
        num_groups, groups, sparse_as_dense, process_set: only their defaults are supported yet.

    Raises:
        ValueError: an argument is wrong or not supported yet, or hvd.init() was not called.
    """
    if isinstance(optimizer, _DistributedMixin):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    check_supported(process_set)
    if num_groups != 0 or groups is not None:
        raise ValueError("DistributedOptimizer(groups=..., num_groups=...) is not supported yet")
    if sparse_as_dense:
        raise ValueError("DistributedOptimizer(sparse_as_dense=True) is not supported yet")
    op = choose_op(op, None)
    if gradient_predivide_factor != 1.0 and op != mpi_ops.Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    names = _names_of(optimizer, named_parameters)
    wrapped_class = optimizer.__class__
    cls = type(wrapped_class.__name__, (_DistributedMixin, wrapped_class), {"__module__": wrapped_class.__module__})
    wrapper = cls.__new__(cls)
    # Shares everything, the parameter groups and the state above all. A scheduler that was made for the optimizer has
    # put a `step` of its own into the object, which would go around ours.
    wrapper.__dict__.update({key: value for key, value in optimizer.__dict__.items() if key != "step"})
    wrapper._hvd_setup(names, _Settings(compression, backward_passes_per_step, op, gradient_predivide_factor))
    return wrapper
