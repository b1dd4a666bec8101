"""TorchState: what a training script consists of, which survives a failed collective."""

import copy
import gc
import random
import sys
from typing import Any, Dict, List, Optional, Tuple

import torch

from horovod.common.elastic import ObjectState
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.mpi_ops import is_initialized, rank


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

    def sync(self, root_rank: int = 0) -> None:
        """Takes over the root's value."""
        raise NotImplementedError


class ModelStateHandler(StateHandler):
    """ModelStateHandler handles a torch.nn.Module by its state_dict."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(self._saved)

    def sync(self, root_rank: int = 0) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank)
        self.save()


class StateDictHandler(StateHandler):
    """StateDictHandler handles any object with state_dict and load_state_dict: a learning rate scheduler, a GradScaler."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        # The copy is deep, because an optimizer keeps the tensors that it is given.
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self, root_rank: int = 0) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), root_rank))
        self.save()


class OptimizerStateHandler(StateDictHandler):
    """OptimizerStateHandler handles a torch optimizer, also a DistributedOptimizer, by its state_dict."""

    def sync(self, root_rank: int = 0) -> None:
        broadcast_optimizer_state(self.value, root_rank)
        self.save()


class SamplerStateHandler(StateHandler):
    """SamplerStateHandler handles an ElasticSampler."""

    def __init__(self, sampler: ElasticSampler) -> None:
        super().__init__(sampler)
        self.save()

    def save(self) -> None:
        self._saved = self.value.state_dict()

    def restore(self) -> None:
        if is_initialized():
            self.value.load_state_dict(self._saved)
        else:  # this rank has left the job; samples are divided when it has joined again
            self.value.epoch = self._saved["epoch"]
            self.value.processed_num = self._saved["processed_num"]

    def sync(self, root_rank: int = 0) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), root_rank))
        self.save()


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

    def sync(self, root_rank: int = 0) -> None:
        self.save()


_handler_registry: List[Tuple[type, type]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (RandomStates, RandomStateHandler),
    (torch.optim.lr_scheduler.LRScheduler, StateDictHandler),
    (torch.optim.lr_scheduler.ReduceLROnPlateau, StateDictHandler),
    (torch.amp.GradScaler, StateDictHandler),
]


def get_handler_registry() -> List[Tuple[type, type]]:
    """Returns pairs of a type and the StateHandler for its objects; the first that fits is used."""
    return list(_handler_registry)


def set_handler_registry(registry: List[Tuple[type, type]]) -> None:
    """Replaces the registry, for TorchStates that are made from now on."""
    _handler_registry[:] = registry


def _handler_of(value: Any) -> Optional[StateHandler]:
    for kind, handler in _handler_registry:
        if isinstance(value, kind):
            return handler(value)
    return None


class TorchState(ObjectState):
    """TorchState is what a training script consists of: `TorchState(model=model, optimizer=optimizer, epoch=0,
    batch=0)`.

    Each argument is an attribute. Models, optimizers, ElasticSamplers, learning rate schedulers and GradScalers are
    saved, restored and synchronised by their state_dict, in place; everything else as an object.

    Args:
        rng: also restores this rank's random numbers, so that what is done again after a failure is done with the same
            ones.
    """

    _root = 0  # whose state is taken over

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        rng: bool = False,
        **kwargs: Any,
    ) -> None:
        if rng:
            kwargs["rng"] = RandomStates()
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
        super().__init__(bcast_object=self._broadcast, get_rank=rank, **plain)

    def _broadcast(self, value: Any) -> Any:
        return broadcast_object(value, self._root)

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Gives all ranks the state of the rank that has committed most, the lowest of these.

        After a restart that is one which was there before, whatever its number is. Ranks that have trained together, and
        have committed equally often, have the same state already if all were restored or none: nothing is sent then.
        """
        commits, came_by = zip(*allgather_object((self._commits, self._came_by)))
        self._came_by = ""
        if len(set(came_by)) == 1 and came_by[0] and min(commits) == max(commits) > 0:
            return
        self._root = commits.index(max(commits))
        try:
            for handler in self._handlers.values():
                handler.sync(self._root)
            super().sync()
        finally:
            self._root = 0
        self._commits = max(commits)

    def reset(self) -> None:
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self._handlers:
            self._handlers[name].set_value(value)

    def covers(self, value: Any) -> bool:
        """Returns whether the object itself is saved and restored."""
        return any(handler.value is value for handler in self._handlers.values())


def check(state: TorchState) -> List[str]:
    """Returns what this process has and `state` does not cover, a line for each, such as "SGD: an optimizer".

    Looked for are models with parameters that are trained, optimizers, learning rate schedulers and GradScalers. Call it
    before training. It looks at all objects of the process, which takes some tenths of a second.
    """
    modules = [handler.value for handler in state._handlers.values() if isinstance(handler.value, torch.nn.Module)]
    known = {id(parameter) for module in modules for parameter in module.parameters()}
    kinds = (
        (torch.optim.Optimizer, "an optimizer"),
        (torch.optim.lr_scheduler.LRScheduler, "a learning rate scheduler"),
        (torch.optim.lr_scheduler.ReduceLROnPlateau, "a learning rate scheduler"),
        (torch.amp.GradScaler, "a GradScaler"),
    )
    found = []
    parts = set()  # modules that are within others
    everything = [value for value in gc.get_objects() if isinstance(value, (torch.nn.Module, *(kind for kind, _ in kinds)))]
    for value in everything:
        if isinstance(value, torch.nn.Module):
            parts.update(id(part) for part in value.modules() if part is not value)
    for value in everything:
        if isinstance(value, torch.nn.Module):
            missing = sum(p.numel() for p in value.parameters() if p.requires_grad and id(p) not in known)
            if missing and id(value) not in parts:
                found.append(f"{type(value).__name__}: a model, of which {missing} trained numbers are not in the state")
        elif not state.covers(value):
            found.append(f"{type(value).__name__}: {next(text for kind, text in kinds if isinstance(value, kind))}")
    return sorted(found)
