"""Finds what of a function or its arguments cannot be pickled, so that an error can name it.

The pickler's own words ("cannot pickle '_thread.lock' object") do not say which of a notebook's variables holds it.
"""

import inspect
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import cloudpickle

# The depth to which attributes, items, and functions that a function refers to are searched.
_DEPTH = 6


def find_culprit(func: Callable[..., Any], args: Tuple, kwargs: Dict[str, Any]) -> Optional[str]:
    """Returns "its variable 'model', attribute '.lock' (a _thread.lock)", or None where no part alone is to blame."""
    parts = [(f"its argument {number}", value) for number, value in enumerate(args)]
    parts += [(f"its argument {name!r}", value) for name, value in kwargs.items()]
    return _first_of(iter([*parts, *_parts_of(func)]), _DEPTH)


def find_in_result(result: Any) -> str:
    """Returns "its result, item 'model', attribute '.lock' (a _thread.lock)", or what the result is, where no part alone is to blame."""
    return _first_of(iter([("its result", result)]), _DEPTH) or f"its result (a {type(result).__qualname__})"


def _is_pickled(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
        return True
    except Exception:
        return False


def _first_of(parts: Iterator[Tuple[str, Any]], depth: int) -> Optional[str]:
    for name, value in parts:
        if _is_pickled(value):
            continue
        inner = _first_of(_parts_of(value), depth - 1) if depth > 1 else None
        kind = type(value)
        what = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        return f"{name}, {inner}" if inner else f"{name} (a {what})"
    return None


def _parts_of(value: Any) -> Iterator[Tuple[str, Any]]:
    """Yields what a value is made of, each part with words for it."""
    function = inspect.unwrap(getattr(value, "__func__", value)) if callable(value) else None
    if inspect.isfunction(function):
        variables = inspect.getclosurevars(function)
        for name, part in [*variables.nonlocals.items(), *variables.globals.items()]:
            if not inspect.ismodule(part) and part is not value:
                yield f"its variable {name!r}", part
        for number, part in enumerate(function.__defaults__ or ()):
            yield f"its default {number}", part
    bound = getattr(value, "__self__", None)
    if bound is not None and not inspect.ismodule(bound):
        yield "its object", bound
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"item {key!r}", part
    elif isinstance(value, (list, tuple, set, frozenset)):
        for number, part in enumerate(value):
            yield f"item {number}", part
    elif not isinstance(value, type) and not inspect.isfunction(value):
        for name, part in getattr(value, "__dict__", {}).items():
            yield f"attribute '.{name}'", part
