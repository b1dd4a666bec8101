"""The operations, in compiled programs and outside.

Outside of jit they go through numpy, without a copy where the array is on the CPU, and raise at once. Inside, and wherever
JAX traces (grad, vmap, scan, cond), they become a call in the program; an error then rises where its result is awaited.
"""

from functools import partial
from typing import Any, Callable, List, Optional, Sequence, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common import _arrays, _lib
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax import _names, _programs
from horovod.jax.compression import Compression

Average, Sum, Adasum, Min, Max, Product = _lib.AVERAGE, _lib.SUM, _lib.ADASUM, _lib.MIN, _lib.MAX, _lib.PRODUCT
_OPS = (Average, Sum, Adasum, Min, Max, Product)


def is_traced(leaves: Sequence[Any]) -> bool:
    """Whether an operation on these is to be a part of a program. In one that holds for constants too: done at once, it would be done
    when JAX traces the program, and never again."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves) or _names.is_in_program()


def _check_op(op: int) -> None:
    if op not in _OPS:
        raise ValueError(f"op={op!r} is none of hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product")


def _as_jax(leaves: Sequence[Any]) -> List[Any]:
    """The same as what a program can take: numpy's values are constants of it."""
    return [leaf if isinstance(leaf, jax.core.Tracer) else jnp.asarray(leaf) for leaf in leaves]


def _on_host(leaf: Any, name: Optional[str]) -> np.ndarray:
    if isinstance(leaf, jax.Array):
        if not leaf.is_fully_addressable:
            raise ValueError(
                f"{name or 'an array'} lies on devices of several processes (jax.distributed). Horovod reduces what each "
                "process has by itself: give the shards of this process (array.addressable_shards), or use JAX's own "
                "collectives for global arrays"
            )
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
            raise ValueError(f"{name or 'an array'} holds elements of {leaf.dtype}; give jax.random.key_data(...) of a key")
    array = np.asarray(leaf)
    if array.dtype.hasobject:
        raise ValueError(f"{name or 'a leaf'} is a {type(leaf).__name__} and no array; use broadcast_object for objects")
    return array


def _as_kind_of(leaf: Any, result: np.ndarray) -> Any:
    """The result as a JAX array. It stays one of numpy where the input was, and JAX would cut its elements (jax_enable_x64)."""
    kept = jax.dtypes.canonicalize_dtype(result.dtype)
    if kept != result.dtype:
        # A number of Python is as JAX has it: a float is rounded, and an integer must fit.
        is_cut = isinstance(leaf, int) and not np.array_equal(result.astype(kept), result)
        if is_cut or isinstance(leaf, (np.ndarray, np.generic)):
            return result
    return jnp.asarray(result)


def _like(result: np.ndarray, leaf: Any) -> Any:
    """The result as a JAX array, where the input was."""
    if isinstance(leaf, jax.Array) and result.shape == leaf.shape:
        return jax.device_put(result, leaf.sharding)
    return _as_kind_of(leaf, result)


# --- reductions ------------------------------------------------------------------------------------------------------


def _is_complex(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.complexfloating)


def _parts_of(leaf: Any) -> Any:
    """The real parts of complex numbers, and the imaginary ones."""
    library = np if isinstance(leaf, (np.ndarray, np.generic)) else jnp
    return library.stack([library.real(leaf), library.imag(leaf)])


def _of_parts(parts: Any) -> Any:
    return parts[0] + 1j * parts[1] if isinstance(parts, np.ndarray) else jax.lax.complex(*parts)


def _is_inexact(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _reduced(how: Tuple, leaves: List[Any]) -> List[Any]:
    names, op, prescale, postscale, number = how
    return _programs.call(
        _lib.ALLREDUCE, leaves, names, op=op, prescale=prescale, postscale=postscale, process_set=number
    )


def _reduced_forward(how: Tuple, leaves: List[Any]) -> Tuple[List[Any], None]:
    return _reduced(how, leaves), None


def _reduced_backward(how: Tuple, _: None, cotangents: List[Any]) -> Tuple[List[Any]]:
    """A sum's is the sum of all ranks', an average's their average. That of an integer is none, and stays so."""
    names, op, *scales, number = how
    if op not in (Average, Sum):
        raise NotImplementedError("only allreduce with op=hvd.Average or hvd.Sum has a gradient")
    places = [i for i, c in enumerate(cotangents) if c.dtype != jax.dtypes.float0]
    result = list(cotangents)
    if places:
        own = tuple(names[i] + ".grad" for i in places)
        for i, value in zip(places, _reduced((own, op, *scales, number), [cotangents[i] for i in places])):
            result[i] = value
    return (result,)


_reduced.defvjp(_reduced_forward, _reduced_backward)


def reduce_leaves(
    leaves: Sequence[Any],
    names: Callable[[str], List[str]],
    name: Optional[str],
    op: int,
    compression: Any,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    kind: str = "allreduce",
) -> List[Any]:
    """The reductions of leaves, as one group. `names` makes their names of that of the call."""
    _check_op(op)
    if not leaves:
        return []
    if op in (Average, Sum) and any(map(_is_complex, leaves)):  # the parts of each number by themselves
        parts = [_parts_of(leaf) if _is_complex(leaf) else leaf for leaf in leaves]
        results = reduce_leaves(parts, names, name, op, compression, prescale, postscale, process_set, kind)
        return [_of_parts(result) if _is_complex(leaf) else result for leaf, result in zip(leaves, results)]
    number = _arrays.number_of(process_set)
    traced = is_traced(leaves)
    if traced:
        leaves = _as_jax(leaves)
        own = names(_names.in_program(kind, name))
    else:
        own = names(name or kind) if name or len(leaves) > 1 else [None]
        for leaf, leaf_name in zip(leaves, own):
            _on_host(leaf, leaf_name)
    packed = [compression.compress(leaf) for leaf in leaves]
    sent = [value for value, _ in packed]
    if traced:
        for value, leaf_name in zip(sent, own):
            _arrays.check_reducible(value.dtype, leaf_name)
        if number != 0:
            _programs.note_dependence()
        received = _reduced((tuple(own), op, float(prescale), float(postscale), number), sent)
    else:
        arrays = [_on_host(value, leaf_name) for value, leaf_name in zip(sent, own)]
        outputs = _arrays.allreduce(arrays, own, op, prescale, postscale, process_set)
        received = [_like(output, value) for output, value in zip(outputs, sent)]
    return [compression.decompress(value, context) for value, (_, context) in zip(received, packed)]


def allreduce(
    tensor: Any,
    op: int = Average,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The reduction over all ranks of an array, or of each of a pytree's, which then are one group.

    Args:
        tensor: an array, or a pytree of arrays; the same shapes and types on every rank.
        op: hvd.Average, Sum, Min, Max, Product, or (of floating-point elements) Adasum. Integers are averaged towards zero.
            Complex numbers have Average and Sum.
        name: the same on every rank. Without one, operations outside of jit are paired in the order in which ranks call
            them, and those in a program by their place in it.
        compression: one of hvd.Compression.
        prescale_factor, postscale_factor: what each tensor is multiplied by before, and the result after.
        process_set: over whose ranks.

    Raises:
        ValueError: elements that cannot be reduced, an array of several processes, or a process set without this one.
        HorovodInternalError: ranks disagree, or one is gone; on every rank. In a program jax.errors.JaxRuntimeError instead,
            with the same text, when its result is awaited (hvd.elastic.run makes the former of it).
    """
    leaves, paths, form = _names.leaves_with_names(tensor, "")
    results = reduce_leaves(
        leaves, lambda base: [base + path for path in paths], name, op, compression, prescale_factor, postscale_factor, process_set
    )
    return jax.tree_util.tree_unflatten(form, results)


def grouped_allreduce(
    tensors: Sequence[Any],
    op: int = Average,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """`allreduce` of a list of arrays or pytrees, done together or not at all; a list."""
    return allreduce(list(tensors), op, name, compression, prescale_factor, postscale_factor, process_set)


# --- broadcast -------------------------------------------------------------------------------------------------------


def check_root(root_rank: Any, process_set: ProcessSet) -> int:
    """The number of the set. ValueError: it is not known, or the rank is no member."""
    number = _arrays.number_of(process_set)
    if not isinstance(root_rank, (int, np.integer)) or root_rank not in process_set.ranks:
        raise ValueError(f"root_rank={root_rank!r} is none of the ranks {process_set.ranks}")
    return number


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _broadcast(how: Tuple, leaves: List[Any]) -> List[Any]:
    names, root_rank, _, number = how
    return _programs.call(_lib.BROADCAST, leaves, names, root_rank=root_rank, process_set=number)


def _broadcast_forward(how: Tuple, leaves: List[Any]) -> Tuple[List[Any], None]:
    return _broadcast(how, leaves), None


def _broadcast_backward(how: Tuple, _: None, cotangents: List[Any]) -> Tuple[List[Any]]:
    """The average of all ranks' on the root, zero elsewhere."""
    names, _, is_root, number = how
    (result,) = _reduced_backward((names, Average, 1.0, 1.0, number), None, cotangents)
    return ([c if is_root or c.dtype == jax.dtypes.float0 else jnp.zeros_like(c) for c in result],)


_broadcast.defvjp(_broadcast_forward, _broadcast_backward)


def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's array or pytree of arrays; a new one. Shapes and types are the same on every rank.

    Args:
        root_rank: a rank of the job, also in a process set.

    Raises:
        As `allreduce`; any type of elements can be sent.
    """
    number = check_root(root_rank, process_set)
    leaves, paths, form = _names.leaves_with_names(tensor, "")
    if not leaves:
        return tensor
    if is_traced(leaves):
        leaves = _as_jax(leaves)
        _programs.note_dependence()
        base = _names.in_program("broadcast", name)
        how = (tuple(base + path for path in paths), int(root_rank), process_set.ranks[process_set.rank()] == root_rank, number)
        results = _broadcast(how, leaves)
    else:
        own = [(name or "broadcast") + path for path in paths] if name or len(leaves) > 1 else [None]
        arrays = [_on_host(leaf, leaf_name) for leaf, leaf_name in zip(leaves, own)]
        outputs = _arrays.broadcast(arrays, own, int(root_rank), process_set)
        results = [_like(output, leaf) for output, leaf in zip(outputs, leaves)]
    return jax.tree_util.tree_unflatten(form, results)


# --- operations that cut or join along dimension 0 -------------------------------------------------------------------


def _rows(kind: str, leaf: Any, divisor: int) -> int:
    """How many rows a leaf has, in a program; all ranks must have as many there."""
    if leaf.ndim == 0:
        raise ValueError(f"{kind}: a scalar has no dimension 0; give it one, as x[None]")
    if leaf.shape[0] % divisor:
        raise ValueError(
            f"{kind}: {leaf.shape[0]} rows cannot be shared evenly by {divisor} ranks, which a compiled program needs, as its "
            "shapes are fixed; call it outside of jit"
        )
    return leaf.shape[0]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _allgather(how: Tuple, leaves: List[Any]) -> List[Any]:
    names, number, size = how
    shapes = [(leaf.shape[0] * size, *leaf.shape[1:]) for leaf in leaves]
    return _programs.call(_lib.ALLGATHER, leaves, names, shapes, process_set=number)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _reducescatter(how: Tuple, leaves: List[Any]) -> List[Any]:
    names, number, size, op, prescale, postscale = how
    shapes = [(leaf.shape[0] // size, *leaf.shape[1:]) for leaf in leaves]
    return _programs.call(
        _lib.REDUCESCATTER, leaves, names, shapes, process_set=number, op=op, prescale=prescale, postscale=postscale
    )


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _alltoall(how: Tuple, leaves: List[Any]) -> List[Any]:
    names, number, _ = how
    return _programs.call(_lib.ALLTOALL, leaves, names, [leaf.shape for leaf in leaves], process_set=number)


def _with_gradient(operation: Any, backward: Callable[[Tuple, List[Any]], List[Any]]) -> None:
    """Defines an operation's gradient by what is done to the cotangents of its floating-point results."""

    def forward(how: Tuple, leaves: List[Any]) -> Tuple[List[Any], List[Any]]:
        return operation(how, leaves), [None if _is_inexact(leaf) else np.zeros(leaf.shape, jax.dtypes.float0) for leaf in leaves]

    def pull_back(how: Tuple, none: List[Any], cotangents: List[Any]) -> Tuple[List[Any]]:
        places = [i for i, c in enumerate(cotangents) if c.dtype != jax.dtypes.float0]
        result = list(none)
        if places:
            own = (tuple(how[0][i] + ".grad" for i in places), *how[1:])
            for i, value in zip(places, backward(own, [cotangents[i] for i in places])):
                result[i] = value
        return (result,)

    operation.defvjp(forward, pull_back)


def _scatter_gradient(how: Tuple, cotangents: List[Any]) -> List[Any]:
    names, number, size, op, prescale, postscale = how
    if op not in (Average, Sum):
        raise NotImplementedError("only reducescatter with op=hvd.Average or hvd.Sum has a gradient")
    factor = prescale * postscale * (size if op == Sum else 1)
    return [value * jnp.asarray(factor, value.dtype) for value in _allgather((names, number, size), cotangents)]


_with_gradient(_allgather, lambda how, cotangents: _reducescatter((*how, Average, 1.0, 1.0), cotangents))
_with_gradient(_reducescatter, _scatter_gradient)
_with_gradient(_alltoall, _alltoall)


def _many(
    kind: str,
    tensors: Sequence[Any],
    name: Optional[str],
    process_set: ProcessSet,
    divides: bool,
    in_program: Callable[[Tuple, List[Any]], List[Any]],
    outside: Callable[[Any, Optional[str]], np.ndarray],
) -> List[Any]:
    number = _arrays.number_of(process_set)
    tensors = list(tensors)
    if is_traced(tensors):
        leaves = _as_jax(tensors)
        for leaf in leaves:
            _rows(kind, leaf, process_set.size() if divides else 1)
        _programs.note_dependence()
        base = _names.in_program(kind, name)
        names = tuple(base if len(leaves) == 1 else f"{base}.{i}" for i in range(len(leaves)))
        return in_program((names, number, process_set.size()), leaves)
    results = []
    for i, tensor in enumerate(tensors):
        own = name and (name if len(tensors) == 1 else f"{name}.{i}")
        array = _on_host(tensor, own)
        if array.ndim == 0:
            raise ValueError(f"{kind}: a scalar has no dimension 0; give it one, as x[None]")
        results.append(_as_kind_of(tensor, outside(array, own)))
    return results


def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> List[Any]:
    """`allgather` of each."""
    return _many("allgather", tensors, name, process_set, False, _allgather,
                 lambda array, own: _arrays.allgather(array, own, process_set))  # fmt: skip


def allgather(tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """All ranks' arrays behind each other along dimension 0. In a program all must have the same shape; outside of jit they
    may differ in that dimension. Errors: as `allreduce`; any type of elements can be sent."""
    return grouped_allgather([tensor], name, process_set)[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: int = Average,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """`reducescatter` of each."""
    _check_op(op)
    if op == Adasum:
        raise ValueError("reducescatter does not know op=hvd.Adasum")
    packed = [compression.compress(tensor) for tensor in tensors]
    for value, _ in packed:
        _arrays.check_reducible(jnp.result_type(value), name)
    scales = (float(prescale_factor), float(postscale_factor))
    results = _many(
        "reducescatter", [value for value, _ in packed], name, process_set, True,
        lambda how, leaves: _reducescatter((*how, op, *scales), leaves),
        lambda array, own: _arrays.reducescatter(array, own, op, *scales, process_set),
    )  # fmt: skip
    return [compression.decompress(value, context) for value, (_, context) in zip(results, packed)]


def reducescatter(
    tensor: Any,
    op: int = Average,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """This rank's rows of the reduction. In a program the rows must be divisible by the number of ranks; outside of jit the
    lowest ranks get one more of what remains. Errors: as `allreduce`."""
    return grouped_reducescatter([tensor], op, name, compression, prescale_factor, postscale_factor, process_set)[0]


def alltoall(
    tensor: Any, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The rows that the ranks send here. Without `splits` each rank gets an even share. With them, of which the i-th says how
    many rows go to rank i, a pair: the rows, and how many came from each rank; outside of jit only. Errors: as `allreduce`;
    any type of elements can be sent."""
    if splits is None:
        return _many("alltoall", [tensor], name, process_set, True, _alltoall,
                     lambda array, own: _arrays.alltoall(array, None, own, process_set)[0])[0]  # fmt: skip
    if is_traced([tensor, splits]):
        raise ValueError("alltoall with splits has results of unknown shape, which a compiled program cannot have; call it outside of jit")
    output, received = _arrays.alltoall(_on_host(tensor, name), np.asarray(splits).tolist(), name, process_set)
    return _as_kind_of(tensor, output), jnp.asarray(received, jnp.int32)


# --- outside of programs only ----------------------------------------------------------------------------------------


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks have called it. It does not wait for programs that JAX still runs: jax.block_until_ready does."""
    _refuse_in_program("barrier")
    _arrays.barrier(process_set)


def join(device: int = -1) -> int:
    """Is refused: a compiled program of the others brings operations that this rank would have to know.

    Raises:
        NotImplementedError: always; the text says what to do instead.
    """
    raise NotImplementedError(
        "horovod.jax has no join: ranks that have no more data must go on with the same programs as the others. Give all ranks as "
        "many steps: hvd.allreduce(numpy.int32(steps), op=hvd.Min) tells how many all have, or weight empty batches by zero"
    )


def _refuse_in_program(what: str) -> None:
    if _names._outermost_trace() is not None:
        raise HorovodInternalError(f"hvd.{what} was called while JAX traces a program, where it would run once and never again; call it outside of jit")
