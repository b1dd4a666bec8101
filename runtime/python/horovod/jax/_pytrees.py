"""Finds the pytrees that a process has its arrays in."""

from typing import Any, Dict, List, Mapping, Tuple

import jax

from horovod.common import _coverage


def _is_namespace(value: dict) -> bool:
    """Returns whether it holds the variables of a module or a class."""
    return "__module__" in value or "__spec__" in value or "__builtins__" in value


def _children_of(value: Any) -> List[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple)):
        return list(value)
    return jax.tree.leaves(value, is_leaf=lambda part: part is not value)


def _nodes() -> List[Any]:
    """Returns everything that can be within a pytree, or be one."""
    [objects] = _coverage.objects_of(object)  # first of all, so that the lists made here are not among them
    is_node: Dict[type, bool] = {dict: True, list: True, tuple: True}
    nodes = []
    for value in objects:
        kind = type(value)
        if kind not in is_node:
            try:
                is_node[kind] = not jax.tree_util.all_leaves([value])
            except Exception:  # an object that is half made, or made for something else
                is_node[kind] = False
        if is_node[kind] and not (kind is dict and _is_namespace(value)):
            nodes.append(value)
    return nodes


def trees_with(leaves: Mapping[int, int]) -> List[Tuple[Any, int]]:
    """Returns the pytrees that are within no other and have some of these leaves, with what these count together.

    Args:
        leaves: what a leaf counts, by its id().
    """
    nodes = {id(node): node for node in _nodes()}
    parents: Dict[int, List[int]] = {}
    for number, node in nodes.items():
        for child in _children_of(node):
            if id(child) in leaves or id(child) in nodes:
                parents.setdefault(id(child), []).append(number)
    counts: Dict[int, int] = {}
    for leaf, count in leaves.items():
        above, seen = [leaf], {leaf}
        while above:
            for number in set(parents.get(above.pop(), ())) - seen:
                seen.add(number)
                above.append(number)
        for number in seen - {leaf}:
            counts[number] = counts.get(number, 0) + count
    return [
        (nodes[number], count)
        for number, count in counts.items()
        if not any(parent in counts for parent in parents.get(number, ())) and not _is_plain_row(nodes[number])
    ]


def _is_plain_row(value: Any) -> bool:
    return type(value) in (list, tuple) and all(isinstance(part, jax.Array) for part in value)


def name_of(tree: Any) -> str:
    """Returns what a user knows it by: its class, and for those of Python also what is in it."""
    kind = type(tree).__name__
    if type(tree) is dict:
        return f"{kind} of {', '.join(str(key) for key in list(tree)[:4])}"
    if type(tree) in (list, tuple):
        return f"{kind} of {', '.join(sorted({type(part).__name__ for part in tree}))}"
    return kind
