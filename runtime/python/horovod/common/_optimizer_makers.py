"""Functions that make an optimizer, among the custom_objects of load_model, as Horovod's scripts have them:

    hvd.load_model(path, custom_objects={"Mine": lambda **kwargs: hvd.DistributedOptimizer(Mine(**kwargs))})

Keras calls such a function for a .h5 file of Keras 2 only. Elsewhere it takes a function for the object itself, and refuses it.
"""

import contextlib
import json
import types
import zipfile
from typing import Any, Callable, Dict, Iterator, List


def _optimizer_of(filepath: Any) -> List[str]:
    """Returns the names of the class of a file's optimizer: its own, and "package>name" of one that is registered. None
    where there is no optimizer, or the file is of another form."""
    optimizer = _configuration_of(filepath)
    names = [optimizer.get("class_name"), optimizer.get("registered_name")] if isinstance(optimizer, dict) else []
    own = [name.rpartition(">")[2] for name in names if name]
    return list(dict.fromkeys([*own, *filter(None, names)]))


def _configuration_of(filepath: Any) -> Any:
    path = str(filepath)
    if path.endswith((".h5", ".hdf5")):
        import h5py

        with h5py.File(path) as file:
            compiled = json.loads(file.attrs.get("training_config", "{}"))
        return compiled.get("optimizer_config")
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        if "config.json" not in archive.namelist():
            return None
        compiled = json.loads(archive.read("config.json")).get("compile_config") or {}
    return compiled.get("optimizer")


def _is_function(value: Any) -> bool:
    return isinstance(value, types.FunctionType)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and "class_name" in value and "config" in value


@contextlib.contextmanager
def called(
    custom_objects: Dict[str, Any], filepath: Any, object_of: Callable[[Any], Any], registered: Dict[str, Any]
) -> Iterator[Dict[str, Any]]:
    """Gives the same objects, where a function under the name of the file's optimizer is called with what its constructor had.

    Args:
        object_of: makes an object of Keras of its configuration, such as a schedule of the learning rate.
        registered: Keras' registered classes. Keras would take one of that name, and not the function.
    """
    names = _optimizer_of(filepath) if any(map(_is_function, custom_objects.values())) else []
    make = next((custom_objects[name] for name in names if _is_function(custom_objects.get(name))), None)
    if make is None:
        yield custom_objects
        return

    def from_config(config: Dict[str, Any]) -> Any:
        return make(**{key: object_of(value) if _is_object(value) else value for key, value in config.items()})

    made = type(names[0], (), {"from_config": staticmethod(from_config)})
    before = {name: registered[name] for name in names if name in registered}
    registered.update(dict.fromkeys(before, made))
    try:
        yield {**custom_objects, **dict.fromkeys(names, made)}
    finally:
        registered.update(before)
