"""TorchState: what a training script consists of, which survives a failed collective."""

import collections
import copy
import inspect
import random
import sys
from typing import Any, Dict, FrozenSet, Iterator, List, Optional, Set, Tuple

import torch

from horovod.common import _coverage
from horovod.common.elastic import ObjectState
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from horovod.torch.mpi_ops import rank

GradScaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)  # torch before 2.3 has that of CUDA only


def _is_plain(value: Any) -> bool:
    return type(value) is torch.Tensor and value.layout is torch.strided and not value.requires_grad


def _fits(old: Any, value: torch.Tensor) -> bool:
    return (
        _is_plain(old)
        and (old.shape, old.dtype, old.device, old.stride()) == (value.shape, value.dtype, value.device, value.stride())
    )  # fmt: skip


class _Copier:
    """_Copier makes a deep copy, which takes over the memory of an earlier one: new memory costs a page fault for each
    page, and more than the copying."""

    def __init__(self) -> None:
        self._taken: Set[int] = set()  # the storages that the new copy uses; tensors of the earlier one may have shared one

    def copy(self, value: Any, old: Any) -> Any:
        if _is_plain(value):
            return self._copy_tensor(value, old)
        if type(value) in (dict, collections.OrderedDict):
            earlier = old if type(old) is type(value) else {}
            made = copy.copy(value)  # with its attributes; a state_dict has some
            for key, item in value.items():
                made[key] = self.copy(item, earlier.get(key))
            return made
        if type(value) in (list, tuple):
            earlier = old if type(old) is type(value) and len(old) == len(value) else [None] * len(value)
            return type(value)(self.copy(item, before) for item, before in zip(value, earlier))
        return copy.deepcopy(value)

    def _copy_tensor(self, value: torch.Tensor, old: Any) -> torch.Tensor:
        if not _fits(old, value) or old.untyped_storage().data_ptr() in self._taken:
            return value.detach().clone(memory_format=torch.preserve_format)
        self._taken.add(old.untyped_storage().data_ptr())
        return old.copy_(value)


class StateHandler:
    """StateHandler says how values of one kind are saved, restored and synchronised."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def set_value(self, value: Any) -> None:
        """Replaces the object by another, which is saved and restored from now on."""
        self.value = value
        self.save()

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def sync(self, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> None:
        """Takes over the root's value, in place. It is saved when everything has come. All members of the process set
        call it; a handler without this argument is called on all ranks."""
        raise NotImplementedError


def _is_in_place(name: str, value: Any) -> bool:
    """Returns whether an entry of a model's state_dict is the model's own tensor. What get_extra_state gives is not, and may
    be a tensor on one rank only."""
    return isinstance(value, torch.Tensor) and not name.endswith("_extra_state")


class ModelStateHandler(StateHandler):
    """ModelStateHandler handles a torch.nn.Module by its state_dict."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.save()

    _saved: Any = None

    def save(self) -> None:
        self._saved = _Copier().copy(self.value.state_dict(), self._saved)

    def restore(self) -> None:
        state = copy.copy(self._saved)
        for name, value in self._saved.items():
            if not _is_in_place(name, value):
                state[name] = copy.deepcopy(value)  # the module may keep the very object, and change it
        self.value.load_state_dict(state)

    def sync(self, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> None:
        state = self.value.state_dict()
        others = {name: value for name, value in state.items() if not _is_in_place(name, value)}
        tensors = {name: value for name, value in state.items() if name not in others}
        broadcast_parameters(tensors, root_rank, process_set)
        if not others:
            return
        others = broadcast_object(others, root_rank, process_set=process_set)
        if rank() != root_rank:
            state.update(others)
            self.value.load_state_dict(state)


class StateDictHandler(StateHandler):
    """StateDictHandler handles any object with state_dict and load_state_dict: a learning rate scheduler, a GradScaler, an
    average of the weights."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    _saved: Any = None

    def save(self) -> None:
        self._saved = _Copier().copy(self.value.state_dict(), self._saved)

    def restore(self) -> None:
        # The copy is deep, because an optimizer keeps the tensors that it is given.
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> None:
        state = broadcast_object(self.value.state_dict(), root_rank, process_set=process_set)
        if rank() != root_rank:
            self.value.load_state_dict(state)


class ScalerStateHandler(StateDictHandler):
    """ScalerStateHandler handles a GradScaler. Its state_dict does not say how far it has come within a step: after a step
    that was broken off, unscale_() would be refused, or left out."""

    def restore(self) -> None:
        super().restore()
        getattr(self.value, "_per_optimizer_states", {}).clear()  # one that is not enabled has none


class OptimizerStateHandler(StateDictHandler):
    """OptimizerStateHandler handles a torch optimizer, also a DistributedOptimizer, by its state_dict.

    What a broken step has left of gradients goes too, since the next backward pass would add to it.
    """

    _with_gradients: FrozenSet[torch.Tensor] = frozenset()

    def save(self) -> None:
        super().save()
        self._with_gradients = frozenset(p for p in self._parameters() if p.grad is not None)

    def restore(self) -> None:
        super().restore()
        for p in self._parameters():
            if p.grad is not None and p.grad.grad_fn is None and p in self._with_gradients:
                p.grad.zero_()  # it may be part of a SharedBuffer
            else:
                p.grad = None
        if getattr(self.value, "_step_supports_amp_scaling", False):
            for left_by_scaler in ("grad_scale", "found_inf"):
                self.value.__dict__.pop(left_by_scaler, None)

    def _parameters(self) -> Iterator[torch.Tensor]:
        return (p for group in self.value.param_groups for p in group["params"])

    def sync(self, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> None:
        broadcast_optimizer_state(self.value, root_rank, process_set=process_set)


class SamplerStateHandler(StateHandler):
    """SamplerStateHandler handles an ElasticSampler."""

    def __init__(self, sampler: ElasticSampler) -> None:
        super().__init__(sampler)
        self.save()

    def save(self) -> None:
        self._saved = self.value.state_dict()

    def restore(self) -> None:
        self.value.load_state_dict(self._saved)

    def sync(self, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> None:
        state = broadcast_object(self.value.state_dict(), root_rank, process_set=process_set)
        if rank() != root_rank:
            self.value.load_state_dict(state)


class DataHandler(StateHandler):
    """DataHandler handles what batches come from: another sampler, a loader, a dataset. They stay this rank's own objects,
    since a copy of one would be a copy of all its data. The number of the epoch alone is saved, restored and synchronised,
    where set_epoch() has given it one."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = getattr(self.value, "epoch", None)

    def restore(self) -> None:
        self._set(self._saved)

    def sync(self, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> None:
        self._set(broadcast_object(getattr(self.value, "epoch", None), root_rank, process_set=process_set))

    def _set(self, epoch: Any) -> None:
        if epoch is not None:
            self.value.epoch = epoch


class RandomStates:
    """RandomStates is this rank's random numbers: those of torch, of its CUDA devices, of Python, and of NumPy if it is
    loaded."""

    def state_dict(self) -> Dict[str, Any]:
        numpy = sys.modules.get("numpy")
        return {
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            "python": random.getstate(),
            "numpy": numpy.random.get_state() if numpy is not None else None,
        }

    def load_state_dict(self, states: Dict[str, Any]) -> None:
        torch.set_rng_state(states["torch"])
        if states["cuda"]:
            torch.cuda.set_rng_state_all(states["cuda"])
        random.setstate(states["python"])
        if states["numpy"] is not None:
            sys.modules["numpy"].random.set_state(states["numpy"])


class RandomStateHandler(StateDictHandler):
    """RandomStateHandler handles RandomStates. They are a rank's own: none takes over another's."""

    def sync(self, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> None:
        pass


_handler_registry: List[Tuple[type, type]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (RandomStates, RandomStateHandler),
    (torch.optim.lr_scheduler.LRScheduler, StateDictHandler),
    (torch.optim.lr_scheduler.ReduceLROnPlateau, StateDictHandler),
    (GradScaler, ScalerStateHandler),
]


# Objects of these kinds that have no state of their own to give.
_DATA = (torch.utils.data.Sampler, torch.utils.data.DataLoader, torch.utils.data.Dataset)


def get_handler_registry() -> List[Tuple[type, type]]:
    """Returns pairs of a type and the StateHandler for its objects; the first that fits is used. Where none fits, an object
    with state_dict and load_state_dict has a StateDictHandler. It is the list itself, as Horovod's, since programs add
    their own to it."""
    return _handler_registry


def set_handler_registry(registry: List[Tuple[type, type]]) -> None:
    """Replaces the registry, for TorchStates that are made from now on."""
    global _handler_registry
    _handler_registry = registry


def _has_state_dict(value: Any) -> bool:
    """Returns whether it is an object that gives its state and takes it, as those of other projects do (timm's schedulers).
    A copy of such a one would act on copies of what it was made for."""
    methods = (getattr(value, name, None) for name in ("state_dict", "load_state_dict"))
    return not isinstance(value, type) and all(callable(method) for method in methods)


def _handler_of(value: Any) -> Optional[StateHandler]:
    for kind, handler in _handler_registry:
        if isinstance(value, kind):
            return handler(value)
    if _has_state_dict(value):
        return StateDictHandler(value)
    return DataHandler(value) if isinstance(value, _DATA) else None


class TorchState(ObjectState):
    """TorchState is what a training script consists of: `TorchState(model=model, optimizer=optimizer, epoch=0,
    batch=0)`.

    Each argument is an attribute. Models, optimizers, ElasticSamplers, learning rate schedulers, GradScalers and all
    other objects with state_dict and load_state_dict are saved, restored and synchronised by them, in place; of other
    samplers, loaders and datasets the epoch's number; everything else as an object.

    Args:
        rng: True also restores this rank's random numbers, so that what is done again after a failure is done with the same
            ones.
    """

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        rng: Any = False,
        **kwargs: Any,
    ) -> None:
        if rng is True:
            kwargs["rng"] = RandomStates()
        elif rng is not False:  # a value of the script's own
            kwargs["rng"] = rng
        everything: Dict[str, Any] = {"model": model, "optimizer": optimizer, **kwargs}
        handlers: Dict[str, StateHandler] = {}
        plain: Dict[str, Any] = {}
        for name, value in everything.items():
            handler = _handler_of(value)
            if handler is not None:
                handlers[name] = handler
            elif value is not None or name in kwargs:
                plain[name] = value
        object.__setattr__(self, "_handlers", handlers)
        for name, value in everything.items():
            if name not in plain:
                object.__setattr__(self, name, value)
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **plain)

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Gives all ranks the state of the rank that has committed most, and divides what its samplers have left.

        After a restart that is a rank which was there before, whatever its number is now. Only ranks without the state
        receive it, each from one on its own node if that has it. So after a loss nobody is sent anything, but where the
        loss came during a commit that some have made and others have not.
        """
        handlers = list(self._handlers.values())
        # A handler of the script's own may know nothing of process sets.
        takes = [list(inspect.signature(handler.sync).parameters) for handler in handlers]
        among_all = not all("process_set" in names for names in takes)

        def send(root: int, process_set: ProcessSet) -> None:
            for handler, names in zip(handlers, takes):
                if names:
                    handler.sync(root, *(() if among_all else (process_set,)))
                elif root == 0:  # as Horovod calls it
                    handler.sync()
                else:
                    raise RuntimeError(
                        f"{type(handler).__name__}.sync() takes no root, and it is rank {root} that has the newest state; give it the "
                        "parameter root: sync(self, root)"
                    )
            self._share_objects(root, lambda values: broadcast_object(values, root, process_set=process_set))

        self._share(send, among_all)
        for sampler in self._samplers():
            sampler.reset()

    def reset(self) -> None:
        for sampler in self._samplers():
            sampler.reset()

    def _samplers(self) -> List[ElasticSampler]:
        return [handler.value for handler in self._handlers.values() if isinstance(handler.value, ElasticSampler)]

    def _progress(self) -> List[int]:
        return [sampler.count() for sampler in self._samplers()]

    def _take_progress(self, progress: List[List[int]]) -> None:
        for sampler, counts in zip(self._samplers(), zip(*progress)):
            sampler.take_counts(counts)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self.__dict__.get("_handlers", ()):  # a subclass may set attributes before it calls our constructor
            self._handlers[name].set_value(value)

    def covers(self, value: Any) -> bool:
        """Returns whether the object itself is saved and restored."""
        return any(handler.value is value for handler in self._handlers.values())


def check(state: TorchState) -> List[str]:
    """Returns what this process has and `state` does not cover, a line for each, such as "SGD: an optimizer".

    Looked for are models with parameters that are trained, optimizers, learning rate schedulers and GradScalers. Call it
    before training. It looks at all objects of the process, which takes some tenths of a second.
    """
    values = [handler.value for handler in state._handlers.values()]
    known = {id(p) for value in values if isinstance(value, torch.nn.Module) for p in value.parameters()}
    kinds = (
        (torch.optim.Optimizer, "an optimizer"),
        (torch.optim.lr_scheduler.LRScheduler, "a learning rate scheduler"),
        (torch.optim.lr_scheduler.ReduceLROnPlateau, "a learning rate scheduler"),
        (GradScaler, "a GradScaler"),
    )
    modules, others = _coverage.objects_of(torch.nn.Module, tuple(kind for kind, _ in kinds))
    found = _coverage.about_models(
        modules,
        lambda module: module.modules(),
        lambda module: sum(p.numel() for p in module.parameters() if p.requires_grad and id(p) not in known),
    )
    for value in others:
        if not state.covers(value):
            found.append(f"{type(value).__name__}: {next(text for kind, text in kinds if isinstance(value, kind))}")
    return sorted(found)
