"""DistributedOptimizer for optax, and gradients that are reduced as they are taken."""

from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Union

import jax
import jax.numpy as jnp

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.jax import _names
from horovod.jax._ops import Average, Sum, reduce_leaves
from horovod.jax.compression import Compression


class AccumulationState(NamedTuple):
    """Of an optimizer with backward_passes_per_step > 1."""

    inner: Any
    count: Any  # of gradients since the last step
    gradients: Any  # their sum


def _reducer(
    op: int,
    compression: Any,
    gradient_predivide_factor: float,
    groups: Optional[int],
    process_set: ProcessSet,
    name: str,
) -> Callable[[Any], Any]:
    """A function that reduces a tree of gradients."""
    prescale = postscale = 1.0
    if gradient_predivide_factor != 1.0:
        if op != Average:
            raise ValueError("gradient_predivide_factor is for op=hvd.Average only")
        prescale, postscale = 1.0 / gradient_predivide_factor, gradient_predivide_factor
    if groups is not None and (not isinstance(groups, int) or isinstance(groups, bool) or groups < 0):
        raise ValueError(f"groups={groups!r}: give the number of groups into which the gradients are to be divided")

    def reduce(gradients: Any) -> Any:
        leaves, paths, form = _names.leaves_with_names(gradients, "")
        results: List[Any] = []
        for part in split_list(list(zip(leaves, paths)), groups or 1) if leaves else ():
            results += reduce_leaves(
                [leaf for leaf, _ in part],
                lambda base, own=part: [base + path for _, path in own],
                name, op, compression, prescale, postscale, process_set,
            )  # fmt: skip
        return jax.tree_util.tree_unflatten(form, results)

    return reduce


def DistributedOptimizer(
    optimizer: Any,
    op: int = Average,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    gradient_predivide_factor: float = 1.0,
    groups: Optional[int] = None,
    process_set: ProcessSet = global_process_set,
    name: str = "DistributedOptimizer",
) -> Any:
    """An optax GradientTransformation whose `update` reduces the gradients over all ranks, and then does what `optimizer` does.

    The state is that of `optimizer` (with backward_passes_per_step > 1: a pair with the sum so far), so that it can be saved and
    loaded without Horovod. Clipping and the like belong into `optimizer`: they then see the reduced gradients.

    Args:
        optimizer: an optax GradientTransformation, also one with extra arguments.
        op: hvd.Average, Sum or Adasum.
        compression: one of hvd.Compression, for gradients on their way.
        backward_passes_per_step: so many gradients are summed up on each rank before they are reduced and a step is made; the
            updates of the others are zero.
        average_aggregated_gradients: divides that sum by their number.
        gradient_predivide_factor: f divides gradients by f before they are summed, and by size / f after; for small types.
        groups: in how many groups they travel; None: in one.
        process_set: over whose ranks.
        name: of two optimizers in one program each needs its own.
    """
    import optax

    if not isinstance(optimizer, optax.GradientTransformation):
        raise ValueError(f"hvd.DistributedOptimizer takes an optax.GradientTransformation, not {type(optimizer).__name__}")
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be 1 or more")
    inner = optax.with_extra_args_support(optimizer)
    reduce = _reducer(op, compression, gradient_predivide_factor, groups, process_set, name)
    passes = backward_passes_per_step

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        return inner.update(reduce(updates), state, params, **extra)

    if passes == 1:
        return optax.GradientTransformationExtraArgs(inner.init, update)

    def init(params: Any) -> AccumulationState:
        return AccumulationState(inner.init(params), jnp.zeros((), jnp.int32), jax.tree.map(jnp.zeros_like, params))

    def accumulate(updates: Any, state: AccumulationState, params: Any = None, **extra: Any) -> Any:
        total = jax.tree.map(jnp.add, state.gradients, updates)

        def of_step(total: Any) -> Any:
            return jax.tree.map(lambda g: g / passes, total) if average_aggregated_gradients else total

        def step(total: Any) -> Any:
            made, after = update(of_step(total), state.inner, params, **extra)
            return made, AccumulationState(after, jnp.zeros((), jnp.int32), jax.tree.map(jnp.zeros_like, total))

        def wait(total: Any) -> Any:
            # Of the types that a step's have, which need not be the gradients'.
            made = jax.eval_shape(lambda g: inner.update(of_step(g), state.inner, params, **extra)[0], total)
            made = jax.tree.map(lambda form: jnp.zeros(form.shape, form.dtype), made)
            return made, AccumulationState(state.inner, state.count + 1, total)

        # All ranks have the same count, so all take the same branch.
        if not isinstance(state.count, jax.core.Tracer):  # outside of programs a cond is compiled anew at each call, and kept
            return (step if int(state.count) == passes - 1 else wait)(total)
        return jax.lax.cond(state.count == passes - 1, step, wait, total)

    return optax.GradientTransformationExtraArgs(init, accumulate)


def value_and_grad(
    fun: Callable[..., Any],
    argnums: Union[int, Sequence[int]] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    op: int = Average,
    compression: Any = Compression.none,
    gradient_predivide_factor: float = 1.0,
    groups: Optional[int] = None,
    process_set: ProcessSet = global_process_set,
    average_value: bool = False,
    name: str = "grad",
) -> Callable[..., Any]:
    """jax.value_and_grad with gradients that are reduced over all ranks; what Horovod's gradient tape does.

    Args:
        average_value: the value too, which else is this rank's own.
        name: of two that are taken in one program each needs its own.
        The others: as jax.value_and_grad and DistributedOptimizer have them.
    """
    local = jax.value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)
    reduce = _reducer(op, compression, gradient_predivide_factor, groups, process_set, name)
    mean = _reducer(Average, Compression.none, 1.0, None, process_set, name + ".value")

    def both(*args: Any, **kwargs: Any) -> Any:
        value, gradients = local(*args, **kwargs)
        if average_value:
            head, *aux = value if has_aux else (value,)
            head = mean(head)
            value = (head, *aux) if has_aux else head
        return value, reduce(gradients)

    return both


def grad(fun: Callable[..., Any], argnums: Union[int, Sequence[int]] = 0, has_aux: bool = False, **options: Any) -> Callable[..., Any]:
    """jax.grad with gradients that are reduced over all ranks. Options: as value_and_grad."""
    both = value_and_grad(fun, argnums, has_aux, **options)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return gradient


def metric_average(tree: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """The averages of a pytree of numbers over all ranks; they travel in one vector, of float64 with jax_enable_x64. In programs
    and outside."""
    leaves, form = jax.tree_util.tree_flatten(tree)
    if not leaves:
        return tree
    vector = jnp.stack([jnp.asarray(leaf, jnp.result_type(float)).reshape(()) for leaf in leaves])
    (average,) = reduce_leaves(
        [vector], lambda base: [base], name or "metric_average", Average, Compression.none, 1.0, 1.0, process_set
    )
    return jax.tree_util.tree_unflatten(form, list(average))


def sync_batch_stats(
    mean: Any, mean_of_squares: Any, count: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The mean, the mean of squares and the count of all ranks' samples together, for batch normalisation; differentiable.

    Args:
        mean, mean_of_squares: this rank's, of the same shape; their types are kept.
        count: of this rank's samples; the result's is float32 at least.
    """
    mean, squares = jnp.asarray(mean), jnp.asarray(mean_of_squares)
    wide = jnp.promote_types(mean.dtype, jnp.float32)  # counts and sums overflow float16
    count = jnp.asarray(count, wide)
    summed = reduce_leaves(
        [mean.astype(wide) * count, squares.astype(wide) * count, count],
        lambda base: [base + ".mean", base + ".squares", base + ".count"],
        name or "batch_stats", Sum, Compression.none, 1.0, 1.0, process_set,
    )  # fmt: skip
    return (summed[0] / summed[2]).astype(mean.dtype), (summed[1] / summed[2]).astype(squares.dtype), summed[2]
