"""horovod.run, which is a function, and was a package before Horovod 0.20: `from horovod.run import run` gives the same function, and
what that package held is in horovod.runner."""

import sys
import types
from typing import Any

import horovod.runner
from horovod.runner import run as run

__path__ = horovod.runner.__path__


def run_func(fn: Any, args: tuple = (), kwargs: Any = None, num_proc: int = 1, **options: Any) -> Any:
    """`run`, under its former name."""
    return run(fn, args, kwargs, num_proc, **options)


class _Callable(types.ModuleType):
    """_Callable is a module that is called like the function that has its name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
