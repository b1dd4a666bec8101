"""Saving and loading estimators and models, also as stages of a Pipeline.

A value is base64 of cloudpickle in Spark's metadata, as models, losses and lambdas have no other form. Loading unpickles:
load only what you would run. Backend and store are of one session, and are not saved.
"""

import base64
import pickle
from typing import Any, Dict, Optional

import cloudpickle
import pyspark
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter

# Not saved: where and with what the next session runs is its own matter.
NOT_SAVED = ("backend", "store")

_FIELD = "values"


def packed(value: Any) -> Optional[str]:
    """As text."""
    return None if value is None else base64.b64encode(cloudpickle.dumps(value)).decode()


def unpacked(text: Optional[str]) -> Any:
    """What packed() was given. Runs code, if `text` says so."""
    return None if text is None else pickle.loads(base64.b64decode(text))


def packed_parameter(name: str, value: Any) -> Optional[str]:
    """A parameter's value as text; None for what is not saved."""
    return None if name in NOT_SAVED else packed(value)


def _session_or_context(session: Any) -> Any:
    return session if int(pyspark.__version__.split(".")[0]) >= 4 else session.sparkContext


class ParamsWriter(MLWriter):
    """Writes an object with parameters."""

    def __init__(self, instance: Any) -> None:
        super().__init__()
        self.instance = instance

    def saveImpl(self, path: str) -> None:
        values: Dict[str, Optional[str]] = {}
        for param, value in self.instance._paramMap.items():
            try:
                value = None if value is None else self.instance._to_saved(param.name, value)
                values[param.name] = packed_parameter(param.name, value)
            except Exception as error:
                who = type(self.instance).__name__
                raise ValueError(f"{who}.save: {param.name} cannot be pickled: {error}") from error
        where = _session_or_context(self.sparkSession)
        DefaultParamsWriter.saveMetadata(self.instance, path, where, extraMetadata={_FIELD: values}, paramMap={})


class ParamsReader(MLReader):
    """Reads what ParamsWriter wrote."""

    def __init__(self, cls: type) -> None:
        super().__init__()
        self.cls = cls

    def load(self, path: str) -> Any:
        metadata = DefaultParamsReader.loadMetadata(path, _session_or_context(self.sparkSession))
        wanted = f"{self.cls.__module__}.{self.cls.__name__}"
        if metadata["class"] != wanted or _FIELD not in metadata:
            raise ValueError(f"{path} holds {metadata['class']}, not {wanted}; load it with the class that saved it")
        instance = self.cls()
        instance._resetUid(metadata["uid"])
        values = {name: unpacked(text) for name, text in metadata[_FIELD].items()}
        saved = {name: None if value is None else instance._from_saved(name, value) for name, value in values.items()}
        instance._set(**saved)
        return instance


class Saved(MLWritable, MLReadable):
    """Base of what can be saved and loaded."""

    def _to_saved(self, name: str, value: Any) -> Any:
        """What is pickled in place of a parameter's value."""
        return value

    def _from_saved(self, name: str, value: Any) -> Any:
        """The value again."""
        return value

    def write(self) -> ParamsWriter:
        return ParamsWriter(self)

    @classmethod
    def read(cls) -> ParamsReader:
        return ParamsReader(cls)
