"""TorchState: models, optimizers, samplers and plain values that survive a failed collective."""

import copy
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


class OptimizerStateHandler(StateHandler):
    """OptimizerStateHandler handles a torch optimizer, also a DistributedOptimizer, by its state_dict."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        # The copy is deep, because an optimizer keeps the tensors that it is given.
        self.value.load_state_dict(copy.deepcopy(self._saved))

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


_handler_registry: List[Tuple[type, type]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
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

    Each argument is an attribute. Models, optimizers and ElasticSamplers are saved, restored and synchronised by their
    state_dict, in place; everything else as an object.
    """

    _root = 0  # whose state is taken over

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        **kwargs: Any,
    ) -> None:
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

        After a restart that is one which was there before, whatever its number is.
        """
        commits = allgather_object(self._commits)
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
