"""Functions that make an optimizer, among the custom_objects of load_model, as Horovod's scripts have them:

    hvd.load_model(path, custom_objects={"Mine": lambda **kwargs: hvd.DistributedOptimizer(Mine(**kwargs))})

Keras calls such a function for a .h5 file of Keras 2 only. Elsewhere it takes a function for the object itself, and refuses it.
"""

import json
import types
import zipfile
from typing import Any, Callable, Dict, Optional


def _optimizer_of(filepath: Any) -> Optional[str]:
    """Returns the name of the class of a file's optimizer; None where there is none, or the file is of another form."""
    path = str(filepath)
    if path.endswith((".h5", ".hdf5")):
        import h5py

        with h5py.File(path) as file:
            compiled = json.loads(file.attrs.get("training_config", "{}"))
        return (compiled.get("optimizer_config") or {}).get("class_name")
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        if "config.json" not in archive.namelist():
            return None
        compiled = json.loads(archive.read("config.json")).get("compile_config") or {}
    optimizer = compiled.get("optimizer")
    return optimizer.get("class_name") if isinstance(optimizer, dict) else None


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and "class_name" in value and "config" in value


def called(custom_objects: Dict[str, Any], filepath: Any, object_of: Callable[[Any], Any]) -> Dict[str, Any]:
    """Returns the same, where a function under the name of the file's optimizer is called with what its constructor had.
    `object_of` makes an object of Keras of its configuration, such as a schedule of the learning rate."""
    if not any(isinstance(value, types.FunctionType) for value in custom_objects.values()):
        return custom_objects
    name = _optimizer_of(filepath)
    make = custom_objects.get(name)
    if not isinstance(make, types.FunctionType):
        return custom_objects

    def from_config(config: Dict[str, Any]) -> Any:
        return make(**{key: object_of(value) if _is_object(value) else value for key, value in config.items()})

    return {**custom_objects, name: type(name, (), {"from_config": staticmethod(from_config)})}
