"""Pickles functions so that their tracebacks on a rank name the file and the line that the user wrote.

cloudpickle 3.1.3 writes "<dynamic-code>" for the file of each function that it carries by value. A failure in the user's
script would then be told without its file, and its traceback would show no source.
"""

import functools
import io
import types
from typing import Any, Callable, Optional

import cloudpickle

_NO_FILE = "<dynamic-code>"


@functools.lru_cache(maxsize=None)
def _pickler_of(base: Any) -> Any:
    class Pickler(base):
        look_at: Optional[Callable[[Any], None]] = None

        def reducer_override(self, obj: Any) -> Any:
            if self.look_at is not None:
                self.look_at(obj)
            if not isinstance(obj, types.CodeType):
                return super().reducer_override(obj)
            make, arguments = base.dispatch_table[types.CodeType](obj)
            return make, tuple(obj.co_filename if argument == _NO_FILE else argument for argument in arguments)

    return Pickler


def dumps(value: Any, base: Any = cloudpickle.Pickler, look_at: Optional[Callable[[Any], None]] = None) -> bytes:
    """Returns what cloudpickle.dumps does, with the file names of code.

    Args:
        base: another Pickler of cloudpickle's kind.
        look_at: is called with each object that is pickled; what it raises is raised.
    """
    with io.BytesIO() as file:
        pickler = _pickler_of(base)(file)
        pickler.look_at = look_at
        pickler.dump(value)
        return file.getvalue()
