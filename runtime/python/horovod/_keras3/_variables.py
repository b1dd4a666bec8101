"""Keras' variables on all ranks: broadcast, and the state of a model as numpy has it."""

from typing import Any, Iterable, List, Sequence

import keras
import numpy as np

from horovod.common import _arrays
from horovod.common.process_sets import ProcessSet, global_process_set


def unique(variables: Iterable[Any]) -> List[Any]:
    """The same without repetition. By identity: Keras' variables have no ref()."""
    seen = {}
    for variable in variables:
        seen.setdefault(id(variable), variable)
    return list(seen.values())


def values_of(variables: Sequence[Any]) -> List[np.ndarray]:
    """Copies."""
    return [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]


def broadcast_variables(
    variables: Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set, name: str = "variables"
) -> None:
    """Overwrites all ranks' variables with the root's. As many on every rank, of the same shapes, in the same order."""
    variables = unique(variables)
    # Names go by position: Keras counts its layers' names in each process, and a rank may have made other layers
    # before.
    names = [f"{name}.{i}" for i in range(len(variables))]
    if not variables:
        return
    for variable, value in zip(variables, _arrays.broadcast(values_of(variables), names, root_rank, process_set)):
        variable.assign(value)


def variables_of(model: Any, optimizer: Any = None) -> List[Any]:
    """What a checkpoint of a model has: its weights and its optimizer's state. Not the states of random generators, by which ranks
    should differ."""
    optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
    return list(model.weights) + (list(optimizer.variables) if optimizer is not None else [])
