"""The state of an optimizer in a .h5 file, the form in which scripts of Keras 2 have their checkpoints."""

from typing import Any, List

import numpy as np


def _weights_of(filepath: Any) -> List[np.ndarray]:
    import h5py

    with h5py.File(filepath) as file:
        group = file.get("optimizer_weights", {})
        attributes = getattr(group, "attrs", {})
        # Keras divides a list of names that is too long for one attribute.
        keys = sorted((key for key in attributes if key.startswith("weight_names")), key=lambda key: (len(key), key))
        return [np.asarray(group[name]) for key in keys for name in attributes[key]]


def restore_optimizer(model: Any, filepath: Any) -> None:
    """Gives a model that Keras has loaded from a .h5 file its optimizer's state. Keras 3 builds that optimizer for no variables, so
    that it loses its state, and refuses to train the model."""
    optimizer = getattr(model, "optimizer", None)
    is_without_variables = optimizer is not None and optimizer.built and not optimizer._trainable_variables
    if not is_without_variables or not str(filepath).endswith((".h5", ".hdf5")):
        return
    optimizer = type(optimizer).from_config(optimizer.get_config())
    optimizer.build(model.trainable_variables)
    weights = _weights_of(filepath)
    if [value.shape for value in weights] == [tuple(variable.shape) for variable in optimizer.variables]:
        for variable, value in zip(optimizer.variables, weights):
            variable.assign(value)
    model.optimizer = optimizer
