"""A checkpoint of a Keras model: its variables and its optimizer's as numpy arrays, and a few facts as JSON.

Nothing in it is unpickled.
"""

import io
import json
from typing import Any, Dict, List, Optional

import numpy

_FACTS = "facts"


def packed(model: Any, rate: Optional[float], facts: Dict[str, Any]) -> bytes:
    """`rate`: of one process; None: the optimizer has a schedule."""
    arrays = {f"model.{number}": _array(variable) for number, variable in enumerate(model.weights)}
    variables = model.optimizer.variables if model.optimizer is not None else []
    arrays.update({f"optimizer.{number}": _array(variable) for number, variable in enumerate(variables)})
    text = json.dumps({**facts, "rate": rate}, default=float)
    file = io.BytesIO()
    numpy.savez(file, **{_FACTS: numpy.frombuffer(text.encode(), numpy.uint8)}, **arrays)
    return file.getvalue()


def facts_of(content: bytes) -> Dict[str, Any]:
    """What was said beside the arrays."""
    with numpy.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return json.loads(arrays[_FACTS].tobytes())


def check_fits(model: Any, content: bytes, run_id: str) -> None:
    """ValueError where the checkpoint is of a model with other weights."""
    with numpy.load(io.BytesIO(content), allow_pickle=False) as arrays:
        count = sum(name.startswith("model.") for name in arrays.files)
        saved = [arrays[f"model.{number}"].shape for number in range(count)]
    own = [tuple(weight.shape) for weight in model.weights]
    if saved != own:
        raise ValueError(
            f"run {run_id} cannot be continued: its checkpoint has {len(saved)} weights {saved} and the model {len(own)} {own}; "
            "choose another run_id"
        )


def restore(model: Any, content: bytes) -> None:
    """Into a model that is compiled with an optimizer of the same kind."""
    with numpy.load(io.BytesIO(content), allow_pickle=False) as arrays:
        _assign(model.weights, [arrays[f"model.{number}"] for number in range(len(model.weights))])
        saved = [arrays[f"optimizer.{number}"] for number in range(len(arrays.files) - 1 - len(model.weights))]
    optimizer = model.optimizer
    if optimizer is None:
        return
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    if [value.shape for value in saved] == [tuple(variable.shape) for variable in optimizer.variables]:
        _assign(optimizer.variables, saved)


def _array(variable: Any) -> numpy.ndarray:
    import keras

    array = keras.ops.convert_to_numpy(variable.value if hasattr(variable, "value") else variable)
    # numpy's files have no bfloat16; a wider type loses nothing.
    return array if array.dtype.kind in "biuf" else array.astype(numpy.float32)


def _assign(variables: List[Any], values: List[numpy.ndarray]) -> None:
    for variable, value in zip(variables, values):
        variable.assign(value)
