"""What a process trains with and an elastic state does not cover, for `hvd.elastic.check` of each front."""

import gc
from typing import Any, Callable, Iterable, List, Sequence, Tuple, Union


def objects_of(*kinds: Union[type, Tuple[type, ...]]) -> List[List[Any]]:
    """Returns a list for each kind, a class or several, of the objects of it that the process has. It looks at all objects,
    which takes some tenths of a second."""
    gc.collect()  # what nobody can reach any more trains nothing
    objects = gc.get_objects()
    # By type(): an object may answer for its class with something else, and load a library to do so.
    return [[value for value in objects if issubclass(type(value), kind)] for kind in kinds]


def about_models(
    models: Sequence[Any], parts_of: Callable[[Any], Iterable[Any]], missing_of: Callable[[Any], int]
) -> List[str]:
    """Returns a line for each model that is within no other.

    Args:
        parts_of: the models that are within one; itself may be among them.
        missing_of: how many of its numbers that are trained are not in the state.
    """
    within = {id(part) for model in models for part in parts_of(model) if part is not model}
    found = [(model, missing_of(model)) for model in models if id(model) not in within]
    return [
        f"{type(model).__name__}: a model, of which {missing} trained numbers are not in the state"
        for model, missing in found
        if missing
    ]


def _key_of(variable: Any) -> int:
    """Returns what is the same of a variable of Keras and of TensorFlow's behind it, and is no other's."""
    handle = getattr(getattr(variable, "_value", variable), "handle", None)
    return id(variable if handle is None else handle)


class Variables:
    """Variables is a set of variables of TensorFlow or Keras, by identity."""

    def __init__(self, variables: Iterable[Any]) -> None:
        self._kept = list(variables)  # so that their identities stay theirs
        self._keys = {_key_of(variable) for variable in self._kept}

    def add(self, variable: Any) -> None:
        self._kept.append(variable)
        self._keys.add(_key_of(variable))

    def __contains__(self, variable: Any) -> bool:
        return _key_of(variable) in self._keys


def optimizer_of(model: Any, given: Any) -> Any:
    """Returns the optimizer that a state of a Keras model has: the one that is given, else the model's. Where the model's scales the
    loss for the given one, it is the model's, since ranks with different scales would take different steps."""
    own = getattr(model, "optimizer", None)
    return own if given is None or getattr(own, "inner_optimizer", None) is given else given


def variables_of(optimizer: Any) -> List[Any]:
    """Returns those of an optimizer of Keras, which has a list of them or a function."""
    if optimizer is None:
        return []
    variables = optimizer.variables
    return list(variables() if callable(variables) and not isinstance(variables, list) else variables)


def count_of(variables: Iterable[Any]) -> int:
    total = 0
    for variable in variables:
        numbers = 1
        for extent in variable.shape:
            numbers *= int(extent)
        total += numbers
    return total


def _parts_of_layer(layer: Any) -> Iterable[Any]:
    flatten = getattr(layer, "_flatten_layers", None)
    return flatten() if flatten is not None else getattr(layer, "submodules", ())


def about_keras(layers: Sequence[Any], optimizers: Sequence[Any], known: Variables, own: Any) -> List[str]:
    """Returns a line for each layer and optimizer that is within no other and has variables that are not known. `own`:
    the optimizer of the state, which may have none yet."""
    lines = about_models(
        layers, _parts_of_layer, lambda layer: count_of(v for v in layer.trainable_variables if v not in known)
    )
    inner = {id(getattr(optimizer, "inner_optimizer", None)) for optimizer in optimizers}
    for optimizer in optimizers:
        variables = variables_of(optimizer)
        is_known = optimizer is own or (variables and all(variable in known for variable in variables))
        if not is_known and id(optimizer) not in inner:
            lines.append(f"{type(optimizer).__name__}: an optimizer")
    return lines
