"""Names of Horovod's for parts that do not exist here. Importing them works; using them says what to use instead."""

from typing import Any, NoReturn

_WHY = "ranks are started and watched by hvdrun, not by services of pickles between Python processes"


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(f"{name} is not supported: {_WHY}; use horovod.run, horovod.spark.run or horovod.ray.RayExecutor")


class _AbsentType(type):
    """_AbsentType is the type of classes that do not exist here. Programs often begin with a static method of theirs."""

    def __getattr__(cls, attribute: str) -> NoReturn:
        if attribute.startswith("_"):  # Python's own questions
            raise AttributeError(attribute)
        _refuse(f"{cls._hvd_name}.{attribute}")


def absent_class(name: str) -> type:
    """Returns a class that cannot be made."""

    class Absent(metaclass=_AbsentType):
        _hvd_name = name

        def __init__(self, *_args: Any, **_kwargs: Any) -> None:
            _refuse(name)

    Absent.__name__ = Absent.__qualname__ = name.rpartition(".")[2]
    return Absent


def absent_function(name: str) -> Any:
    """Returns a function that cannot be called."""

    def absent(*_args: Any, **_kwargs: Any) -> None:
        _refuse(name)

    absent.__name__ = absent.__qualname__ = name.rpartition(".")[2]
    return absent
