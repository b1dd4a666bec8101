"""The names under which Keras saves and finds classes that a script has registered with keras.saving.register_keras_serializable."""

from typing import Any, Type


def save_as(kind: Type[Any], base: Type[Any], registry: Any) -> None:
    """Has Keras save objects of a class under the registered name of its base. By its own name a file would load nowhere, as Keras
    looks for classes that are not its own among the registered ones only.

    Args:
        registry: keras.utils, of the Keras that the classes are of.
    """
    name = registry.get_registered_name(base)
    if name == base.__name__ or base.__module__.partition(".")[0] in ("keras", "tf_keras"):
        return
    package, _, own_name = name.rpartition(">")
    classes = registry.get_custom_objects()
    found = classes.get(name, base)
    registry.register_keras_serializable(package, own_name)(kind)
    classes[name] = found  # what a file is loaded with
