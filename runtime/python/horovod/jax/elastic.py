"""Training that goes on after a failed collective.

    state = hvd.elastic.JaxState(params=params, opt_state=opt_state, epoch=0)

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, 10):
            state.params, state.opt_state = train_epoch(state.params, state.opt_state)
            state.commit()

    train(state)

A failed collective raises on every rank, inside a compiled program too; `run` then restores what was committed last, joins
the job anew, makes all ranks' state that of the rank which has committed most, and calls the function again. What
horovod.torch.elastic says of restarted ranks holds here as well.
"""

import copy
from typing import Any, Callable, Dict, Iterable, List, Optional

import jax
import numpy as np

from horovod.common import _arrays, basics
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.common.process_sets import ProcessSet, get_process_set_ids_and_ranks
from horovod.jax import _programs, _pytrees, _shutdown
from horovod.jax.functions import ArrayForm, values_of

__all__ = ["JaxState", "check", "run"]


def _place_of(leaf: Any) -> Optional[jax.sharding.Sharding]:
    """Returns on which of this process's devices an array was put, and how it is divided; None where JAX has chosen."""
    is_put = isinstance(leaf, jax.Array) and leaf.committed and leaf.is_fully_addressable
    return leaf.sharding if is_put else None


def _places_in(tree: Any) -> Dict[Any, Any]:
    """Returns the place of each array of a tree, by its path in it and its shape."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {(jax.tree_util.keystr(path), leaf.shape): _place_of(leaf) for path, leaf in leaves if _is_array(leaf)}


class _Saved:
    """_Saved is a copy of an array in the host's memory."""

    def __init__(self, leaf: Any) -> None:
        self.array, self.values, self.place = ArrayForm(leaf), np.array(values_of(leaf)), _place_of(leaf)

    def make(self) -> Any:
        """Returns the array again."""
        return self.array.make(self.values, self.place)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray))


class JaxState(ObjectState):
    """What a training script consists of: `JaxState(params=params, opt_state=opt_state, epoch=0)`.

    Each argument is an attribute: a pytree with arrays and keys of jax.random, or any object. `commit` copies arrays to the
    host, so that a program that was given them to overwrite (donated) may. An array that lies on some of this process's
    devices, or is divided among them, does so again after a failure. A rank that comes has its arrays where its script
    has put them.

    Raises:
        ValueError: an array lies on devices of several processes.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(_arrays.broadcast_object, basics.rank, **kwargs)

    def _copies(self, names: Iterable[str]) -> Dict[str, Any]:
        def saved(leaf: Any) -> Any:
            return _Saved(leaf) if _is_array(leaf) else copy.deepcopy(leaf)

        return {name: jax.tree.map(saved, getattr(self, name)) for name in names}

    def _set_attrs(self) -> None:
        def made(leaf: Any) -> Any:
            return leaf.make() if isinstance(leaf, _Saved) else copy.deepcopy(leaf)

        for name, value in self._saved_state.items():
            setattr(self, name, jax.tree.map(made, value))

    def check_host_updates(self) -> None:
        """As State.check_host_updates. Before it interrupts, it waits for the programs that this process has started.

        Leaving the job would cancel them, and the state that they give would be lost."""
        try:
            super().check_host_updates()
        except HostsUpdatedInterrupt:
            jax.block_until_ready([getattr(self, name) for name in self._saved_state])
            _shutdown.wait_for_programs()  # the state may not need the results of some, such as a loss
            raise

    def sync(self) -> None:
        """Gives all ranks the state of the rank that has committed most; only those that do not have it receive it."""
        self._share(self._send)

    def _send(self, root: int, process_set: ProcessSet) -> None:
        is_root = basics.rank() == root
        own = {name: getattr(self, name) for name in self._saved_state}
        plan = jax.tree.map(lambda leaf: ArrayForm(leaf) if _is_array(leaf) else leaf, own) if is_root else None
        plan = _arrays.broadcast_object(plan, root, "JaxState", process_set)
        specs = [spec for spec in jax.tree_util.tree_leaves(plan) if isinstance(spec, ArrayForm)]
        leaves = [leaf for leaf in jax.tree_util.tree_leaves(own) if _is_array(leaf)] if is_root else []
        arrays = [values_of(leaf) for leaf in leaves] if is_root else [np.empty(spec.shape, spec.dtype) for spec in specs]
        names = [f"JaxState.{i}" for i in range(len(arrays))]
        received = _arrays.broadcast(arrays, names, root, process_set) if arrays else []
        if not is_root:
            self._take(plan, received, _places_in(own))

    def _take(self, plan: Any, received: Iterable[np.ndarray], places: Dict[Any, Any]) -> None:
        """Takes over the root's attributes: its plan, with the values of each array in order."""
        values = iter(received)

        def made(path: Any, spec: Any) -> Any:
            if not isinstance(spec, ArrayForm):
                return spec
            return spec.make(next(values), places.get((jax.tree_util.keystr(path), spec.whole_shape)))

        for name, value in jax.tree_util.tree_map_with_path(made, plan).items():
            setattr(self, name, value)


def check(state: JaxState) -> List[str]:
    """Returns what this process has and `state` does not cover, a line for each, such as "ScaleByAdamState: a pytree, of
    which 24 numbers are not in the state".

    Looked for are pytrees with arrays of floating point numbers. A single array may be data, and so may one in a list or
    a tuple of nothing else; these are left out. Call it before training. It looks at all objects of the process, which
    takes some tenths of a second.
    """
    kept = {id(leaf) for name in state._saved_state for leaf in jax.tree.leaves(getattr(state, name))}
    missing = {
        id(array): array.size
        for array in jax.live_arrays()
        if jax.numpy.issubdtype(array.dtype, jax.numpy.inexact) and id(array) not in kept
    }
    return sorted(
        f"{_pytrees.name_of(tree)}: a pytree, of which {count} numbers are not in the state"
        for tree, count in _pytrees.trees_with(missing)
    )


def reset() -> None:
    """Leaves the job and joins it anew. HorovodInternalError when not all ranks come in time."""
    before = _composition() if basics.is_initialized() else None  # the script may have left the job itself
    basics.shutdown()
    basics.init()
    if _programs.has_any_that_depends_on_ranks() and _composition() != before:
        jax.clear_caches()  # the next call of a program traces it again


def _composition() -> Any:
    return basics.rank(), basics.size(), sorted(get_process_set_ids_and_ranks().items())


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function of a state, and whatever else, so that it goes on after a failed collective.

    Raises (when the decorated function is called):
        HorovodInternalError: the ranks could not meet again, or the failure comes again and again with nothing committed in
            between.
    """
    return run_fn(func, reset)
