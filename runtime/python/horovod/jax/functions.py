"""Broadcasting what is more than one array: parameters, an optimizer's state, any object."""

from typing import Any, List, Optional

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common import _arrays, _lib, basics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax import _names, _ops


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic))


def is_key(leaf: Any) -> bool:
    """Returns whether it is an array of keys of jax.random."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def values_of(array: Any) -> np.ndarray:
    """Returns what an array or a key consists of, without a copy where that is possible. ValueError for an array of several
    processes."""
    return _ops._on_host(jax.random.key_data(array) if is_key(array) else array, None)


class ArrayForm:
    """ArrayForm says what an array is, beside its values: of NumPy, of JAX, or keys of jax.random of some kind."""

    def __init__(self, leaf: Any) -> None:
        self.is_numpy = isinstance(leaf, np.ndarray)
        self.key_impl = jax.random.key_impl(leaf) if is_key(leaf) else None
        values = values_of(leaf)
        self.whole_shape = leaf.shape  # an array of keys has one dimension more in its values
        self.shape, self.dtype = values.shape, values.dtype

    def keyed(self, values: Any) -> Any:
        """Returns keys of these values, where the array holds keys."""
        return values if self.key_impl is None else jax.random.wrap_key_data(jnp.asarray(values), impl=self.key_impl)

    def make(self, values: np.ndarray, place: Optional[jax.sharding.Sharding]) -> Any:
        """Returns a new array of these values, at this place if there is one."""
        return np.array(values) if self.is_numpy else jax.device_put(self.keyed(values), place)


def _values_like(leaf: Any, form: ArrayForm) -> Any:
    """Returns the values of a rank's own array for the broadcast of one of this form; where it has none, any."""
    if not _is_array(leaf):
        return np.empty(form.shape, form.dtype)
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def _forms_of_root(leaves: List[Any], paths: List[str], root_rank: int, name: str, process_set: ProcessSet) -> List[Any]:
    """Returns the root's objects, and the forms of its arrays. Whether a leaf is a number or an array may differ between ranks: the
    one has restored a checkpoint, the others have made a new state.

    Raises:
        HorovodInternalError: ranks have other leaves; on every rank.
    """
    is_root = basics.rank() == root_rank
    forms = [ArrayForm(leaf) if _is_array(leaf) else leaf for leaf in leaves]  # on each rank: it says what cannot be sent
    told_paths, told = _arrays.broadcast_object((paths, forms) if is_root else None, root_rank, name + ".forms", process_set)
    (is_same,) = _arrays.allreduce([np.int32(paths == told_paths)], [name + ".is_same"], _lib.MIN, process_set=process_set)
    if not is_same:
        odd = sorted(set(paths) ^ set(told_paths))
        what = f"; {odd[0]} is only on one of them" if odd else ""
        raise HorovodInternalError(f"{name}: rank {root_rank} and others have pytrees with different leaves{what}")
    return told


def broadcast_parameters(
    params: Any, root_rank: int = 0, name: str = "broadcast_parameters", process_set: ProcessSet = global_process_set
) -> Any:
    """The root's pytree; typically of parameters, before training: `params = hvd.broadcast_parameters(params)`. Arrays of JAX
    cannot be changed in place, so it is what is returned that counts.

    Args:
        params: a pytree of arrays with the same leaves on every rank; also keys of jax.random. Leaves that are no arrays on the
            root (numbers, say) travel as objects. In a program numbers become arrays, and other objects are refused.
        root_rank: 0 ... size() - 1, the same on every rank.

    Raises:
        HorovodInternalError: ranks disagree on leaves, shape or type, or a rank is gone; on every rank.
    """
    leaves, paths, tree = _names.leaves_with_names(params, "")
    if _ops.is_traced(leaves):
        leaves = [leaf if _is_array(leaf) else jnp.asarray(leaf) for leaf in leaves]
        forms = [jax.random.key_impl(leaf) if is_key(leaf) else None for leaf in leaves]
        values = [jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves]
        received = _ops.broadcast(dict(zip(paths, values)), root_rank, name, process_set)
        results = [received[path] if form is None else jax.random.wrap_key_data(received[path], impl=form) for path, form in zip(paths, forms)]
        return jax.tree_util.tree_unflatten(tree, results)
    _ops.check_root(root_rank, process_set)
    forms = _forms_of_root(leaves, paths, int(root_rank), name, process_set)
    sent = {path: _values_like(leaf, form) for leaf, path, form in zip(leaves, paths, forms) if isinstance(form, ArrayForm)}
    received = _ops.broadcast(sent, root_rank, name, process_set)
    results = [form.keyed(received[path]) if isinstance(form, ArrayForm) else form for path, form in zip(paths, forms)]
    return jax.tree_util.tree_unflatten(tree, results)


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
