"""Pickles functions so that their tracebacks on a rank name the file and the line that the user wrote.

cloudpickle 3.1.3 writes "<dynamic-code>" for the file of each function that it carries by value. A failure in the user's
script would then be told without its file, and its traceback would show no source.
"""

import io
import types
from typing import Any

import cloudpickle

_NO_FILE = "<dynamic-code>"


class _Pickler(cloudpickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, types.CodeType):
            return super().reducer_override(obj)
        make, arguments = cloudpickle.Pickler.dispatch_table[types.CodeType](obj)
        return make, tuple(obj.co_filename if argument == _NO_FILE else argument for argument in arguments)


def dumps(value: Any) -> bytes:
    """Returns what cloudpickle.dumps does, with the file names of code."""
    with io.BytesIO() as file:
        _Pickler(file).dump(value)
        return file.getvalue()
