"""Optimizers that travel: tied to a copy of the model, and with the rate of one process. Needs no Spark."""

import copy
from typing import Any, List, Optional, Tuple

import numpy
import torch


def plain(value: Any) -> Any:
    """The same with Python's numbers in the place of numpy's, such as a learning rate of logspace(): a checkpoint that is opened
    without running anything in it has no others."""
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain(one) for one in value)
    return value.item() if isinstance(value, numpy.generic) else value


# The attribute of an optimizer that was loaded apart from its model: the places of its parameters among the model's.
_PLACES = "_horovod_places"


def saved(model: Any, optimizer: torch.optim.Optimizer) -> Tuple[torch.optim.Optimizer, Optional[List[int]]]:
    """What is saved of an optimizer beside its model, for loaded(). In groups its parameters have an order of their own."""
    place_of = {id(p): place for place, p in enumerate(model.parameters())} if model is not None else {}
    places = [place_of.get(id(p)) for group in optimizer.param_groups for p in group["params"]]
    known = [place for place in places if place is not None]
    return optimizer, known if len(known) == len(places) else getattr(optimizer, _PLACES, None)


def loaded(value: Any) -> torch.optim.Optimizer:
    """The optimizer of what saved() gave; earlier releases saved it alone."""
    optimizer, places = value if isinstance(value, tuple) else (value, None)
    setattr(optimizer, _PLACES, places)
    return optimizer


def tied(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer on this model's parameters.

    An optimizer that was pickled together with its model holds the model's parameters already. One that was not holds copies,
    which are replaced by those at the places that saved() has noted, or else in their order. ValueError: they are not those of
    the model.
    """
    theirs = [p for group in optimizer.param_groups for p in group["params"]]
    ours = list(model.parameters())
    known = {id(p) for p in ours}
    if all(id(p) in known for p in theirs):
        return optimizer
    places = getattr(optimizer, _PLACES, None)
    noted = [] if places is None or max(places, default=0) >= len(ours) else [ours[place] for place in places]
    for candidates in (noted, ours, [p for p in ours if p.requires_grad]):
        if [p.shape for p in candidates] == [p.shape for p in theirs]:
            return _moved(optimizer, theirs, candidates)
    raise ValueError(
        f"the optimizer has {len(theirs)} parameters and the model {len(ours)}, or of other shapes; "
        "make the optimizer with model.parameters()"
    )


def _moved(
    optimizer: torch.optim.Optimizer, before: List[torch.Tensor], now: List[torch.Tensor]
) -> torch.optim.Optimizer:
    moved = copy.copy(optimizer)
    place = {id(old): new for old, new in zip(before, now)}
    moved.param_groups = [
        {**group, "params": [place[id(p)] for p in group["params"]]} for group in optimizer.param_groups
    ]
    moved.state = type(optimizer.state)(getattr(optimizer.state, "default_factory", None) or dict)
    for p, state in optimizer.state.items():
        moved.state[place.get(id(p), p)] = copy.deepcopy(state)
    return moved


# The keys of a group that are rates; the last three are those of the schedulers OneCycleLR and SWALR.
_RATES = ("lr", "initial_lr", "max_lr", "min_lr", "swa_lr")


def multiply_rate(state: Any, factor: float) -> Any:
    """An optimizer, or its state_dict(), with its learning rates multiplied; returned."""
    groups = state["param_groups"] if isinstance(state, dict) else state.param_groups
    for group in groups:
        for name in _RATES:
            if group.get(name) is not None:
                group[name] = group[name] * factor
    return state


def unscaled_state(optimizer: torch.optim.Optimizer, size: int) -> Any:
    """Its state_dict() with the rate of one process, as checkpoints and models have it; the optimizer stays as it is."""
    state = optimizer.state_dict()
    state = {**state, "param_groups": [dict(group) for group in state["param_groups"]]}
    return multiply_rate(state, 1 / size)
