"""DistributedOptimizer is an optimizer whose step sees the gradients of all ranks."""

import contextlib
import numbers
import os
import warnings
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch

from horovod.common import _lib, basics
from horovod.common.process_sets import ProcessSet, global_process_set, number_of
from horovod.common.util import choose_op
from horovod.torch import _heap, mpi_ops
from horovod.torch._adasum_optimizer import AdasumMixin
from horovod.torch._gradients import Settings
from horovod.torch._named import (
    NamedMixin,
    names_in_groups,
    names_of_groups,
    stay_out_of_compiled_code,
    travelling_names,
)
from horovod.torch._reducer import Reducer
from horovod.torch.compression import Compression
from horovod.torch.functions import broadcast_object, check_optimizer

_TWO_SYNCHRONIZATIONS = (
    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). The gradients "
    "are reduced already and are not reduced again; use skip_synchronize() if you call synchronize() yourself."
)

_NO_BASE = (
    "horovod.torch.optimizer._DistributedOptimizer is no base class for an optimizer of your own: Horovod's hooks and handles "
    "are not here. Call hvd.DistributedOptimizer(optimizer, ...), where compression= can be a class of yours, or reduce the "
    "gradients yourself with hvd.allreduce_async_ and hvd.synchronize"
)

_ONLY_LIKE_ONE = (
    "{} is no subclass of torch.optim.Optimizer; if it wraps an optimizer, give hvd.DistributedOptimizer that one, and wrap the "
    "result"
)


# Attributes of Horovod's class, by their names in Settings.
_TOLD = {"gradient_predivide_factor": "postscale", "op": "op", "process_set": "process_set", "sparse_as_dense": "sparse_as_dense"}


class _DistributedOptimizer(NamedMixin):
    """_DistributedOptimizer precedes the wrapped optimizer's class among the bases of the class that DistributedOptimizer
    makes. It has Horovod's name because programs say `isinstance` with it, or name it in annotations."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Any:
        # Schedulers of other projects derive from Horovod's class and replace its hooks, or copy its __dict__. Nothing here
        # would call theirs, and gradients would not be reduced.
        if _DistributedOptimizer not in cls.__mro__ or not issubclass(cls, torch.optim.Optimizer):
            raise NotImplementedError(_NO_BASE)
        return super().__new__(cls)

    def _hvd_setup(
        self,
        names: Dict[torch.Tensor, str],
        settings: Settings,
        groups: Sequence[Sequence[int]],
        travelling: Sequence[Sequence[Optional[str]]] = (),
    ) -> None:
        """`groups` holds positions among all parameters, `travelling` the names under which gradients of a copy travel."""
        self._hvd_names = names
        # They are those of the original, because a rank may make a copy alone.
        self._hvd_travelling = names_of_groups(self, travelling)
        self._hvd_number: Optional[int] = None  # among those with parameters without names
        self._hvd_settings = settings
        self._hvd_groups = groups
        self._hvd_reducer = Reducer(settings, self._hvd_add_hooks)
        self._should_synchronize = True  # it has Horovod's name because callbacks of other projects set it
        stay_out_of_compiled_code()
        process_set = settings.process_set
        # A single rank has nothing to reduce.
        self._hvd_reduces = process_set.takes_part() and (
            process_set.size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1"
        )
        self._hvd_name_parameters()
        self._hvd_add_hooks()

    def _hvd_name_parameters(self) -> None:
        for group_index, group in enumerate(self.param_groups):
            for index, p in enumerate(group["params"]):
                if p not in self._hvd_travelling:
                    self._hvd_travelling[p] = self._hvd_name_that_travels(p, group_index, index)

    def _hvd_name_that_travels(self, p: torch.Tensor, group_index: int, index: int) -> str:
        if p in self._hvd_names:
            return travelling_names.name_of(p, self._hvd_names[p], self._hvd_settings.process_set)
        self._hvd_number = travelling_names.next_unnamed() if self._hvd_number is None else self._hvd_number
        self._hvd_names[p] = f"allreduce.noname.{self._hvd_number}.{group_index}.{index}"
        # The library takes a name with "noname" for one that never comes again, and has ranks tell it in full each time.
        return f"allreduce.unnamed.{self._hvd_number}.{group_index}.{index}"

    @property
    def _parameter_names(self) -> Dict[torch.Tensor, str]:
        """Returns the name of each parameter, under the name that Horovod's own tests and some scripts read."""
        return self._hvd_names

    def _hvd_add_hooks(self) -> None:
        """Hooks every parameter that needs a gradient and has no hook yet, because groups and unfrozen parameters come
        later, and scripts change param_groups."""
        if not self._hvd_reduces:
            return
        reducer = self._hvd_reducer
        reducer.hook_again()
        everything = [p for group in self.param_groups for p in group["params"]]
        new = [p for p in everything if p.requires_grad and p not in reducer.gradients]
        if not new:
            return
        self._hvd_name_parameters()
        _heap.keep_for(new)
        # Parameters that are added after others have hooks are reduced one by one.
        groups = [] if reducer.gradients else [[everything[i] for i in group] for group in self._hvd_groups]
        reducer.add([(self._hvd_travelling[p], p) for p in new], groups)

    def synchronize(self) -> None:
        """Makes every gradient hold the reduction over all ranks. After a backward pass it does already.

        Where none was made (on this rank, or fewer than backward_passes_per_step), gradients are reduced as they are now; a
        missing one counts as zeros, so that ranks whose models take different paths agree. Whoever calls it steps inside
        `skip_synchronize()`.

        Raises:
            HorovodInternalError: a reduction failed; on every rank. The gradients are in no defined state then.
            RuntimeError: a gradient was changed while it was being reduced, after a backward pass within another one.
        """
        self._hvd_complete()
        self._hvd_reducer.common.is_by_user = True

    def _hvd_complete(self) -> None:
        reducer = self._hvd_reducer
        if reducer.common.is_synchronized and not reducer.common.is_in_flight:
            return
        reducer.start_all()
        reducer.complete()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Returns a context in which `step` does not synchronize, as in scripts for Horovod (here the first line is not
        needed):

        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()
        """
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Synchronizes, then makes the wrapped optimizer's step, which is the same on every rank.

        A closure's gradients are reduced in each of its runs, and so is the loss that it returns (a number, or a tensor with
        one element), so that a line search takes the same way on every rank.
        """
        common = self._hvd_reducer.common
        self._hvd_note_step()
        reduced_closure = closure
        if self._should_synchronize:
            if closure is not None:

                def reduced_closure() -> Any:
                    loss = closure()
                    self._hvd_complete()
                    return self._hvd_reduce_loss(loss)

                if common.is_in_flight:
                    self._hvd_complete()
            else:
                if common.is_synchronized and common.is_by_user:
                    warnings.warn(_TWO_SYNCHRONIZATIONS, stacklevel=2)
                self._hvd_complete()
        if reduced_closure is closure:
            self._hvd_reducer.start_over()
        # Else the closure may make no gradient, and then those that are reduced already are the step's.
        result = super().step() if reduced_closure is None else super().step(reduced_closure)
        self._hvd_reducer.start_over()
        return result

    def _hvd_reduce_loss(self, loss: Any) -> Any:
        """Returns the loss whose gradients are the reduced ones."""
        if not self._hvd_reduces:
            return loss
        settings = self._hvd_settings
        op = mpi_ops.Sum if settings.op == mpi_ops.Sum else mpi_ops.Average
        options = {"name": "DistributedOptimizer.loss", "op": op, "process_set": settings.process_set}
        if isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.is_floating_point():
            return mpi_ops.allreduce(loss.detach(), **options)
        if isinstance(loss, float):
            return mpi_ops.allreduce(torch.tensor(loss, dtype=torch.float64, device="cpu"), **options).item()
        return loss

    # torch wraps the step of each optimizer class to run step hooks and the profiler; the wrapped class's step, which
    # ours calls, has that already.
    step.hooked = True

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Calls the wrapped optimizer's zero_grad. AssertionError while reductions of the gradients are in flight."""
        common = self._hvd_reducer.common
        if common.is_in_flight:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        self._hvd_reducer.start_over()
        self._hvd_reducer.hook_again()
        self._hvd_reducer.count_anew()
        super().zero_grad(*args, **kwargs)

    @property
    def backward_passes_per_step(self) -> int:
        """Returns how many backward passes are summed locally before the reduction."""
        return self._hvd_settings.passes

    @backward_passes_per_step.setter
    def backward_passes_per_step(self, passes: int) -> None:
        self.set_backward_passes_per_step(passes)

    def __getattr__(self, name: str) -> Any:
        """Returns what DistributedOptimizer was asked for, under Horovod's names, where the wrapped optimizer has no such
        attribute of its own."""
        settings = self.__dict__.get("_hvd_settings")
        wrapped = getattr(super(), "__getattr__", None)
        if wrapped is not None:  # the script's own class may have one
            with contextlib.suppress(AttributeError):
                return wrapped(name)
        if settings is None or name not in _TOLD:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(settings, _TOLD[name])

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes are summed locally before the reduction."""
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self._hvd_reducer.set_passes(passes)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Calls the wrapped optimizer's add_param_group; the new parameters are reduced too."""
        super().add_param_group(param_group)
        self._hvd_name_parameters()
        self._hvd_add_hooks()

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Calls the wrapped optimizer's load_state_dict. Reductions in flight are waited for and forgotten."""
        with contextlib.suppress(Exception):  # of an operation whose result nobody wants
            self._hvd_reducer.finish()
        self._hvd_reducer.start_over()
        with self._hvd_shared():
            super().load_state_dict(*args, **kwargs)

    def _hvd_asked(self) -> Tuple[Any, ...]:
        return (self._hvd_settings, self._hvd_groups, names_in_groups(self, self._hvd_travelling))


def _names_of(
    optimizer: torch.optim.Optimizer, named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]]
) -> Dict[torch.Tensor, str]:
    """Returns the checked name of each parameter; empty when none were given."""
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


def _check_groups(groups: Any) -> None:
    if groups is None:
        return
    if isinstance(groups, list):
        seen = set()
        for group in groups:
            if isinstance(group, torch.Tensor) or not all(isinstance(p, torch.Tensor) for p in group):
                raise ValueError("groups must be a list of lists of torch.Tensor.")
            for p in group:
                if p in seen:
                    raise ValueError("A parameter can only appear once in groups.")
                seen.add(p)
    elif isinstance(groups, bool) or not isinstance(groups, numbers.Integral) or groups < 0:
        raise ValueError("groups should be a non-negative integer or a list of lists of torch.Tensor.")


def _positions_of(
    groups: Any, optimizer: torch.optim.Optimizer, names: Dict[torch.Tensor, str], process_set: ProcessSet
) -> List[List[int]]:
    """Returns the groups as positions among all of the optimizer's parameters, the same tensors in the same order on
    every rank."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    position = {p: i for i, p in enumerate(parameters)}
    order = [i for i, p in enumerate(parameters) if p.requires_grad]
    if not groups or not process_set.takes_part():
        return []
    if names and basics.restart_limit():
        # A rank that was started again makes its optimizer alone, so this must not communicate with the others.
        order.sort(key=lambda i: names[parameters[i]])
    elif names and process_set.size() > 1:
        # Ranks may have their parameters in different orders.
        own = [names[parameters[i]] for i in order]
        place = {name: i for i, name in enumerate(broadcast_object(own, process_set.ranks[0], process_set=process_set))}
        order.sort(key=lambda i: place.get(names[parameters[i]], len(place)))
    if isinstance(groups, list):
        rank_in_order = {i: n for n, i in enumerate(order)}
        chosen = [[position[p] for p in group if p in position] for group in groups]
        result = [sorted((i for i in group if i in rank_in_order), key=rank_in_order.get) for group in chosen]
    else:
        # The parts are as even as possible, the first ones longer, in the order of the parameters.
        size, longer = divmod(len(order), groups)
        ends = [0]
        for n in range(groups):
            ends.append(ends[-1] + size + (n < longer))
        result = [order[begin:end] for begin, end in zip(ends, ends[1:])]
    if any(len(group) > _lib.MAX_GROUP for group in result):
        raise ValueError(f"a group of more than {_lib.MAX_GROUP} parameters; make more groups")
    return result


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

    The reduction of gradients starts as soon as backward has 256 KiB of them, while it goes on with the others; on one
    host with less than two cores for each rank, when backward ends (or waits for something else). It is complete when
    `backward()` returns, so that a script may clip gradients, or use a GradScaler, as it would without this. The result is an object
    of a subclass of the optimizer's own class and shares its parameter groups and state; use it in place of the
    optimizer. Call `broadcast_parameters` first: equal parameters plus equal gradients stay equal, bit by bit.

    Args:
        optimizer: any torch optimizer, with the same parameters on every rank, of the same memory format too: a gradient in
            torch.channels_last is reduced where it is, and ranks that disagree get HorovodInternalError from the step.
        named_parameters: `model.named_parameters()`; the names appear in messages. Needed where ranks may have their
            parameters in different orders. Another model's parameters may have the same names, if all ranks make their
            optimizers in the same order: the gradients of the second one travel under names that end with "#2".
        compression: `hvd.Compression.none`, `.fp16` or `.bf16`; or an object of yours with their two methods, which are called
            for each gradient.
        backward_passes_per_step: this many backward passes are summed on each rank, without division, before the
            reduction. Without it more passes than one before a step add up too, each of which is reduced; only averages.
        op: hvd.Average or hvd.Sum (also Min, Max, Product). With hvd.Adasum each rank steps by its own gradients, and all
            then keep the Adasum of what their steps changed; groups and sparse_as_dense have no meaning then.
        gradient_predivide_factor: f splits the averaging: gradients are multiplied by 1/f before the sum and by f/size
            after it. Only with op=hvd.Average.
        groups: gradients that are reduced together, when the last of them is there: a number of groups into which the
            parameters are divided in their order, or a list of lists of parameters. Those in no list go alone.
        num_groups: the former name of a number of groups.
        sparse_as_dense: sparse gradients (of torch.nn.Embedding(sparse=True)) are reduced as dense ones, and made sparse
            again. Otherwise the values of all ranks are gathered. A parameter whose gradients are sparse must have one on
            every rank in the first step.
        process_set: the ranks that train together; on others the optimizer works by itself.

    Raises:
        ValueError: an argument is wrong or not supported yet, or hvd.init() was not called.
        HorovodInternalError: a rank or link was lost while the ranks agreed on the groups.
    """
    if isinstance(optimizer, (_DistributedOptimizer, AdasumMixin)):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    check_optimizer(optimizer)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(_ONLY_LIKE_ONE.format(type(optimizer).__name__))
    number_of(process_set)
    op = choose_op(op, None)
    if gradient_predivide_factor != 1.0 and op != mpi_ops.Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if num_groups != 0:
        warnings.warn("Parameter `num_groups` has been replaced by `groups`", DeprecationWarning, stacklevel=2)
        if groups is None:
            groups = num_groups
    _check_groups(groups)
    names = _names_of(optimizer, named_parameters)
    wrapped_class = optimizer.__class__
    mixin = AdasumMixin if op == mpi_ops.Adasum else _DistributedOptimizer
    # The class is of this module, as Horovod's: Lightning's strategy looks for "horovod" in it, so as not to wrap it again.
    both = type(wrapped_class.__name__, (mixin, wrapped_class), {"__module__": __name__})
    # Lightning 1 derives a class of its own from the first base of this one, which with Horovod is the wrapped class.
    cls = type(wrapped_class.__name__, (both,), {"__module__": __name__})
    wrapper = cls.__new__(cls)
    # Shares everything, the parameter groups and the state above all. A scheduler that was made for the optimizer has
    # put a `step` of its own into the object, which would go around ours.
    wrapper.__dict__.update({key: value for key, value in optimizer.__dict__.items() if key != "step"})
    wrapper._hvd_wrapped = weakref.ref(optimizer)
    if op == mpi_ops.Adasum:
        wrapper._hvd_setup(names, compression, process_set)
        wrapper.set_backward_passes_per_step(backward_passes_per_step)
        return wrapper
    settings = Settings(
        compression, backward_passes_per_step, op, gradient_predivide_factor, sparse_as_dense, process_set
    )
    wrapper._hvd_setup(names, settings, _positions_of(groups, optimizer, names, process_set))
    return wrapper
