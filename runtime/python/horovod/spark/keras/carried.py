"""How models, optimizers, losses and metrics of Keras travel: as Keras' own files and configurations, and no pickles of them.

Keras is imported late, in functions: whoever unpacks says first which backend it is to have.
"""

import os
import tempfile
from typing import Any, Dict, Optional


class Model:
    """A Keras model as the bytes of its file, without what it was compiled with."""

    def __init__(self, model: Any, custom_objects: Optional[Dict[str, Any]]) -> None:
        with tempfile.TemporaryDirectory(prefix="hvd-keras-") as folder:
            path = os.path.join(folder, "model.keras")
            model.save(path)
            with open(path, "rb") as file:
                self._content = file.read()
        self._custom_objects = dict(custom_objects or {})

    def open(self) -> Any:
        """The model. Runs code that the model says, as loading with Lambda layers does."""
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
        self._told = compiled_with(model)

    def open(self) -> Any:
        model = self._model.open()
        if self._told:
            model.compile(**compiling(self._told, self._custom_objects))
        return model


class _Config:
    """An object of Keras by its configuration."""

    def __init__(self, value: Any) -> None:
        import keras

        self._config = keras.saving.serialize_keras_object(value)

    def open(self, custom_objects: Dict[str, Any]) -> Any:
        import keras

        return keras.saving.deserialize_keras_object(self._config, custom_objects=custom_objects, safe_mode=False)


def packed(value: Any) -> Any:
    """A loss, metric or optimizer, or lists and dicts of them, as something that pickles; functions stay as they are."""
    import keras

    if isinstance(value, dict):
        return {name: packed(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [packed(item) for item in value]
    if isinstance(value, (keras.losses.Loss, keras.metrics.Metric, keras.optimizers.Optimizer)):
        return _Config(value)
    return value


def unpacked(value: Any, custom_objects: Dict[str, Any]) -> Any:
    """What packed() was given, as new objects."""
    if isinstance(value, dict):
        return {name: unpacked(item, custom_objects) for name, item in value.items()}
    if isinstance(value, list):
        return [unpacked(item, custom_objects) for item in value]
    return value.open(custom_objects) if isinstance(value, _Config) else value


def compiled_with(model: Any) -> Dict[str, Any]:
    """What a compiled model was compiled with, packed; empty: it is not compiled."""
    if not getattr(model, "compiled", False):
        return {}
    told = model.get_compile_config() or {}
    if told.get("optimizer") is None:
        return {}

    import keras

    opened = {name: keras.saving.deserialize_keras_object(told[name]) for name in
              ("optimizer", "loss", "loss_weights", "metrics", "weighted_metrics") if told.get(name) is not None}  # fmt: skip
    return {name: packed(value) for name, value in opened.items()}


def compiling(told: Dict[str, Any], custom_objects: Dict[str, Any]) -> Dict[str, Any]:
    """The arguments of compile(), with an optimizer of its own."""
    import keras

    opened = unpacked(told, custom_objects)
    return {**opened, "optimizer": keras.optimizers.get(opened["optimizer"])}
