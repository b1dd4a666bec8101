"""Broadcasting what is more than one array: parameters, an optimizer's state, any object."""

from typing import Any, List, Optional

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common import _arrays
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax import _ops


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic))


def is_key(leaf: Any) -> bool:
    """Returns whether it is an array of keys of jax.random."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def values_of(array: Any) -> np.ndarray:
    """Returns what an array or a key consists of, without a copy where that is possible. ValueError for an array of several
    processes."""
    return _ops._on_host(jax.random.key_data(array) if is_key(array) else array, None)


def broadcast_parameters(
    params: Any, root_rank: int = 0, name: str = "broadcast_parameters", process_set: ProcessSet = global_process_set
) -> Any:
    """The root's pytree; typically of parameters, before training: `params = hvd.broadcast_parameters(params)`. Arrays of JAX
    cannot be changed in place, so it is what is returned that counts.

    Args:
        params: a pytree of arrays of the same form on every rank; also keys of jax.random. Leaves that are no arrays (numbers,
            say) travel as objects.
        root_rank: 0 ... size() - 1, the same on every rank.

    Raises:
        HorovodInternalError: ranks disagree on shape or type, or a rank is gone; on every rank.
    """
    leaves, form = jax.tree_util.tree_flatten(params)
    results = list(leaves)
    sent = [i for i, leaf in enumerate(leaves) if _is_array(leaf) or isinstance(leaf, jax.core.Tracer)]
    if sent:
        values = [jax.random.key_data(leaves[i]) if is_key(leaves[i]) else leaves[i] for i in sent]
        paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(params)[0]]
        received = _ops.broadcast({paths[i]: value for i, value in zip(sent, values)}, root_rank, name, process_set)
        for i in sent:
            value = received[paths[i]]
            results[i] = jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaves[i])) if is_key(leaves[i]) else value
    others = [i for i in range(len(leaves)) if i not in set(sent)]
    if others:
        received = _arrays.broadcast_object([leaves[i] for i in others], root_rank, name + ".objects", process_set)
        for i, value in zip(others, received):
            results[i] = value
    return jax.tree_util.tree_unflatten(form, results)


def broadcast_optimizer_state(
    opt_state: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's optimizer state, as `broadcast_parameters`; typically after rank 0 loaded a checkpoint."""
    return broadcast_parameters(opt_state, root_rank, "broadcast_optimizer_state", process_set)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's object, on every rank; on the root, `obj` itself. Outside of jit only.

    Args:
        obj: anything that cloudpickle can carry; looked at on the root only.
        root_rank: 0 ... size() - 1, the same on every rank.
        name: the same on every rank.

    Raises:
        HorovodInternalError: a rank or link is gone; on every rank.
    """
    _ops._refuse_in_program("broadcast_object")
    return _arrays.broadcast_object(obj, root_rank, name, process_set)


def allgather_object(obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> List[Any]:
    """The ranks' objects, in rank order, on every rank. `obj` is anything that cloudpickle can carry. Outside of jit only."""
    _ops._refuse_in_program("allgather_object")
    return _arrays.allgather_object(obj, name, process_set)
