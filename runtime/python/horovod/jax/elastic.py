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

import functools
import re
from typing import Any, Callable, List

import jax
import numpy as np

from horovod.common import _arrays, basics
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, get_process_set_ids_and_ranks
from horovod.jax import _programs, _pytrees
from horovod.jax.functions import is_key, values_of

__all__ = ["JaxState", "check", "run"]

_STATUS = re.compile(r"\[hvd (\d+)\] (.*)", re.S)


def job_error(error: BaseException) -> Any:
    """The HorovodInternalError that an error of a compiled program stands for; None for one of another cause."""
    found = _STATUS.search(str(error))
    return HorovodInternalError(found[2], int(found[1])) if found else None


class _Array:
    """_Array says what an array is, beside its values: of NumPy, of JAX, or keys of jax.random of some kind."""

    def __init__(self, leaf: Any) -> None:
        self.is_numpy = isinstance(leaf, np.ndarray)
        self.key_impl = jax.random.key_impl(leaf) if is_key(leaf) else None
        values = values_of(leaf)
        self.shape, self.dtype = values.shape, values.dtype

    def make(self, values: np.ndarray) -> Any:
        """Returns a new array of these values."""
        if self.is_numpy:
            return np.array(values)
        made = jax.numpy.asarray(values)
        return made if self.key_impl is None else jax.random.wrap_key_data(made, impl=self.key_impl)


class _Saved:
    """_Saved is a copy of an array in the host's memory."""

    def __init__(self, leaf: Any) -> None:
        self.array, self.values = _Array(leaf), np.array(values_of(leaf))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray))


class JaxState(ObjectState):
    """What a training script consists of: `JaxState(params=params, opt_state=opt_state, epoch=0)`.

    Each argument is an attribute: a pytree with arrays and keys of jax.random, or any object. `commit` copies arrays to the
    host, so that a program that was given them to overwrite (donated) may.

    Raises:
        ValueError: an array lies on devices of several processes.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(_arrays.broadcast_object, basics.rank, **kwargs)
        self.save()

    def save(self) -> None:
        def saved(leaf: Any) -> Any:
            return _Saved(leaf) if _is_array(leaf) else leaf

        self._saved_state = {name: jax.tree.map(saved, getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        self._set_attrs()

    def _set_attrs(self) -> None:
        def made(leaf: Any) -> Any:
            return leaf.array.make(leaf.values) if isinstance(leaf, _Saved) else leaf

        for name, value in self._saved_state.items():
            setattr(self, name, jax.tree.map(made, value))

    def sync(self) -> None:
        """Gives all ranks the state of the rank that has committed most; only those that do not have it receive it."""
        self._share(self._send)

    def _send(self, root: int, process_set: ProcessSet) -> None:
        is_root = basics.rank() == root
        values = {name: getattr(self, name) for name in self._saved_state} if is_root else None
        plan = jax.tree.map(lambda leaf: _Array(leaf) if _is_array(leaf) else leaf, values) if is_root else None
        plan = _arrays.broadcast_object(plan, root, "JaxState", process_set)
        specs, form = jax.tree_util.tree_flatten(plan)
        own = jax.tree_util.tree_leaves(values) if is_root else specs
        places = [i for i, spec in enumerate(specs) if isinstance(spec, _Array)]
        arrays = [values_of(own[i]) if is_root else np.empty(specs[i].shape, specs[i].dtype) for i in places]
        if places:
            for i, value in zip(places, _arrays.broadcast(arrays, [f"JaxState.{i}" for i in places], root, process_set)):
                specs[i] = specs[i].make(value)
        if not is_root:
            for name, value in jax.tree_util.tree_unflatten(form, specs).items():
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

    @functools.wraps(func)
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except jax.errors.JaxRuntimeError as error:
            meant = job_error(error)
            if meant is None:
                raise
            raise meant from error

    return run_fn(told, reset)
