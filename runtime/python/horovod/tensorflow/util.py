"""Helpers for both of TensorFlow's ways to execute, and for both kinds of variables."""

from typing import Any, Callable, List

import tensorflow as tf

from horovod.common import _coverage


def _executing_eagerly() -> bool:
    """Whether operations are done at once, and not written into a graph."""
    return tf.executing_eagerly()


def _cache(function: Callable) -> Callable:
    """Remembers a function's results by its arguments, in each of the two ways by itself."""
    results: dict = {}

    def wrapper(*args: Any) -> Any:
        key = (args, _executing_eagerly())
        if key not in results:
            results[key] = function(*args)
        return results[key]

    return wrapper


def variable_of(variable: Any) -> Any:
    """The tf.Variable behind a variable of Keras 3; others are their own."""
    inner = getattr(variable, "_value", None)
    return inner if isinstance(inner, tf.Variable) else variable


def evaluated(result: Any) -> Any:
    """What an operation of a Keras function gives: in a graph of TensorFlow 1 the value that Keras' session computes. In a
    tf.function it stays a tensor."""
    if result is None or tf.compat.v1.executing_eagerly_outside_functions():
        return result
    return tf.compat.v1.keras.backend.get_session().run(result)


def key_of(variable: Any) -> int:
    """What a variable is found by; variables of Keras 3 have no ref()."""
    return id(variable_of(variable))


def state_of(optimizer: Any) -> List[Any]:
    """The variables of an optimizer by which ranks step alike, each once. In legacy Keras its learning rate and the scale of its loss
    are not among `optimizer.variables`."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    others = [getattr(inner, "_learning_rate", None)]  # it may be a schedule
    others += [value for _, value in sorted(getattr(inner, "_hyper", {}).items())]  # of older optimizers
    scale = getattr(optimizer, "_loss_scale", None)  # a number, if it does not change
    others += [getattr(scale, "current_loss_scale", None), getattr(scale, "counter", None)]
    found = _coverage.variables_of(optimizer) + [value for value in others if isinstance(value, tf.Variable)]
    return list({key_of(variable): variable for variable in found}.values())


def name_of(variable: Any) -> str:
    """For names of tensors; the same on all ranks as long as they build the same model."""
    return getattr(variable, "path", None) or getattr(variable, "name", None) or "variable"


def is_in_xla(graph: Any) -> bool:
    """Whether a graph is written for tf.function(jit_compile=True)."""
    try:
        from tensorflow.python.ops import control_flow_util

        return bool(control_flow_util.GraphOrParentsInXlaContext(graph))
    except (ImportError, AttributeError):  # a private module; without it TensorFlow reports it
        return False
