"""How models, optimizers, losses and metrics of Keras travel: as Keras' own files and configurations, and no pickles of them.

Keras is imported late, in functions: whoever unpacks says first which backend it is to have.
"""

import copy
import os
import tempfile
from typing import Any, Dict, Optional


def content_of(model: Any) -> bytes:
    """The bytes of the model's .keras file."""
    with tempfile.TemporaryDirectory(prefix="hvd-keras-") as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        with open(path, "rb") as file:
            return file.read()


class Model:
    """A Keras model as the bytes of its file, without what it was compiled with."""

    def __init__(self, model: Any, custom_objects: Optional[Dict[str, Any]]) -> None:
        self._content = content_of(model)
        self._custom_objects = dict(custom_objects or {})
        import keras

        self._policy = keras.saving.serialize_keras_object(model.dtype_policy)

    def open(self) -> Any:
        """The model. Runs code that the model says, as loading with Lambda layers does."""
        import keras

        before = keras.config.dtype_policy()
        # A model's file has the policies of its layers only. The model's own is the one in force while it is made.
        keras.config.set_dtype_policy(keras.saving.deserialize_keras_object(self._policy))
        try:
            return self._load()
        finally:
            keras.config.set_dtype_policy(before)

    def _load(self) -> Any:
        import keras

        with tempfile.TemporaryDirectory(prefix="hvd-keras-") as folder:
            path = os.path.join(folder, "model.keras")
            with open(path, "wb") as file:
                file.write(self._content)
            return keras.saving.load_model(path, custom_objects=self._custom_objects, compile=False, safe_mode=False)


class Saved:
    """A Keras model with what it was compiled with, but for the optimizer's state."""

    def __init__(self, model: Any, custom_objects: Optional[Dict[str, Any]]) -> None:
        self._custom_objects = dict(custom_objects or {})
        self._model = Model(model, custom_objects)
        self._told = compiled_with(model, custom_objects)

    def open(self) -> Any:
        model = self._model.open()
        if self._told:
            model.compile(**compiling(self._told, self._custom_objects))
        return model


class _Config:
    """An object of Keras by its configuration."""

    def __init__(self, value: Any, custom_objects: Dict[str, Any]) -> None:
        import keras

        # Who unpacks may not be able to import the class: it may be of a notebook. So it travels with the value.
        own = {} if type(value).__module__.startswith("keras.") else {type(value).__name__: type(value)}
        self._custom_objects = {**own, **custom_objects}
        self._config = keras.saving.serialize_keras_object(value)

    def open(self, custom_objects: Dict[str, Any]) -> Any:
        import keras

        known = {**self._custom_objects, **custom_objects}
        config = copy.deepcopy(self._config)  # LossScaleOptimizer takes a part out
        return keras.saving.deserialize_keras_object(config, custom_objects=known, safe_mode=False)


def packed(value: Any, custom_objects: Optional[Dict[str, Any]] = None) -> Any:
    """A loss, metric or optimizer, or lists and dicts of them, as something that pickles; functions stay as they are."""
    import keras

    if isinstance(value, dict):
        return {name: packed(item, custom_objects) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [packed(item, custom_objects) for item in value]
    if isinstance(value, (keras.losses.Loss, keras.metrics.Metric, keras.optimizers.Optimizer)):
        return _Config(value, custom_objects or {})
    return value


def unpacked(value: Any, custom_objects: Dict[str, Any]) -> Any:
    """What packed() was given, as new objects."""
    if isinstance(value, dict):
        return {name: unpacked(item, custom_objects) for name, item in value.items()}
    if isinstance(value, list):
        return [unpacked(item, custom_objects) for item in value]
    return value.open(custom_objects) if isinstance(value, _Config) else value


def compiled_with(model: Any, custom_objects: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """What a compiled model was compiled with, packed; empty: it is not compiled."""
    # Keras' get_compile_config() has names in place of functions. These are the objects that compile() was given.
    config = getattr(model, "_compile_config", None) if getattr(model, "compiled", False) else None
    told = dict(config.config) if config is not None else {}
    if told.get("optimizer") is None:
        return {}
    if isinstance(told["optimizer"], str):  # the model's has a rate, which may have been set since
        told["optimizer"] = model.optimizer
    return {name: packed(value, custom_objects) for name, value in told.items() if value is not None}


def compiling(told: Dict[str, Any], custom_objects: Dict[str, Any]) -> Dict[str, Any]:
    """The arguments of compile(), with an optimizer of its own."""
    import keras

    opened = unpacked(told, custom_objects)
    return {**opened, "optimizer": keras.optimizers.get(opened["optimizer"])}
