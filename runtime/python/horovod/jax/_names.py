"""The names of operations. Ranks compile unequally often, so that no counter of the process may be in the name of one that
is in a compiled program: it is made of where in the program it stands."""

import sys
import zlib
from typing import Any, List, Optional, Tuple
from weakref import WeakKeyDictionary

import jax

# For each program that is being traced: how often each name of an operation has been asked for.
_counts: "WeakKeyDictionary[Any, dict]" = WeakKeyDictionary()

_OURS = __name__.rpartition(".")[0]


def leaves_with_names(tree: Any, name: str) -> Tuple[List[Any], List[str], Any]:
    """The leaves of a tree, a name for each by its path, and the tree's form. What is no tree is one leaf of that name."""
    pairs, form = jax.tree_util.tree_flatten_with_path(tree)
    names = [name + jax.tree_util.keystr(path).replace("\n", " ") for path, _ in pairs]
    return [leaf for _, leaf in pairs], names, form


def _innermost_trace() -> Optional[Any]:
    """What stands for the function, or the body of a loop or condition, that is being traced. JAX offers no public name for it."""
    try:
        from jax._src.core import trace_ctx

        return trace_ctx.trace
    except (ImportError, AttributeError):
        return None


def _traces() -> List[Any]:
    """What stands for each function that is being traced, from the innermost outwards."""
    trace, found = _innermost_trace(), []
    while trace is not None:
        if type(trace).__name__ != "EvalTrace":
            found.append(trace)
        trace = getattr(trace, "parent_trace", None)
    return found


def _outermost_trace() -> Optional[object]:
    """What stands for the program that is being traced; without one, names are told apart by their place in the source only."""
    return (_traces() or [None])[-1]


def is_in_program() -> bool:
    """Whether what is called now becomes part of a program, of whatever values. jax.grad and vmap alone make none: there, what does
    not depend on their arguments is computed at once, each time."""
    return any(type(trace).__name__ == "DynamicJaxprTrace" for trace in _traces())


def _count(trace: Any, what: str) -> int:
    """How many of these there are in the program now, this one too; 1 where nothing stands for a program."""
    try:
        counts = _counts.setdefault(trace, {})
    except TypeError:  # a trace that has no weak references
        return 1
    counts[what] = counts.get(what, 0) + 1
    return counts[what]


def is_early_in_program() -> bool:
    """Whether this call of an operation is among the first two of what is traced."""
    return _count(_innermost_trace(), "early in the program") <= 2


def _place() -> str:
    """Where in the program that is traced the operation is called: the functions and lines from there on outwards, up to
    JAX's own that began to trace."""
    frame, lines = sys._getframe(1), []
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in ("jax", "jaxlib"):
            break
        if not module.startswith(_OURS):
            lines.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return f"{zlib.crc32(';'.join(lines).encode()):08x}"


def in_program(kind: str, given: Optional[str]) -> str:
    """The name of an operation in the program that is being traced, unlike that of all others there. Shapes are no part of it:
    ranks that disagree about them are to meet, and to be told."""
    base = f"jit.{given}" if given else f"jit.{kind}.{_place()}"
    count = _count(_outermost_trace(), base)
    return base if count == 1 else f"{base}#{count}"
