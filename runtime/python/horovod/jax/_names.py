"""The names of operations. Ranks compile unequally often, so that no counter of the process may be in the name of one that
is in a compiled program: it is made of where in the program it stands."""

import sys
import zlib
from typing import Any, List, Optional, Tuple
from weakref import WeakKeyDictionary

import jax

# Of each program that is being traced: how many operations have a name already that would be theirs.
_counts: "WeakKeyDictionary[Any, dict]" = WeakKeyDictionary()

_OURS = __name__.rpartition(".")[0]


def leaves_with_names(tree: Any, name: str) -> Tuple[List[Any], List[str], Any]:
    """The leaves of a tree, a name for each by its path, and the tree's form. What is no tree is one leaf of that name."""
    pairs, form = jax.tree_util.tree_flatten_with_path(tree)
    names = [name + jax.tree_util.keystr(path).replace("\n", " ") for path, _ in pairs]
    return [leaf for _, leaf in pairs], names, form


def _outermost_trace() -> Optional[object]:
    """What stands for the program that is being traced. JAX offers no public name for it; without one, names are told apart by
    their place in the source only."""
    try:
        from jax._src.core import trace_ctx

        trace, found = trace_ctx.trace, None
        while trace is not None:
            if type(trace).__name__ != "EvalTrace":
                found = trace
            trace = getattr(trace, "parent_trace", None)
        return found
    except (ImportError, AttributeError):
        return None


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
    trace = _outermost_trace()
    if trace is None:
        return base
    try:
        counts = _counts.setdefault(trace, {})
    except TypeError:  # a trace that cannot be referred to
        return base
    count = counts[base] = counts.get(base, 0) + 1
    return base if count == 1 else f"{base}#{count}"
