"""horovod.run, which is a function, and was a package before Horovod 0.20: `from horovod.run import run` gives the same function, and
what that package held is in horovod.runner."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any, Optional

from horovod.runner import run as run

_PLACES = {"runner": "launch"}  # modules that had other names


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """_Finder gives the modules of horovod.runner under the names that they had here."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname.startswith(__name__ + ".") else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        first, dot, rest = spec.name[len(__name__) + 1 :].partition(".")
        module = importlib.import_module(f"horovod.runner.{_PLACES.get(first, first)}{dot}{rest}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = module.__spec__.loader_state  # the import has put its own there


__path__: list = []  # a package, whose modules _Finder has
sys.meta_path.insert(0, _Finder())


def run_func(fn: Any, args: tuple = (), kwargs: Any = None, num_proc: int = 1, **options: Any) -> Any:
    """`run`, under its former name."""
    return run(fn, args, kwargs, num_proc, **options)


class _Callable(types.ModuleType):
    """_Callable is a module that is called like the function that has its name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs)

    def __reduce__(self) -> Any:  # as other modules are pickled: by name
        return importlib.import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Callable
