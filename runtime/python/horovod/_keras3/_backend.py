"""The grouped allreduce of the backend that Keras runs on, chosen at import; the only place that knows the backends apart.

    grouped_allreduce(tensors, names, op, compression, prescale_factor, postscale_factor, process_set) -> list of tensors
    scale_local(gradient, process_set) -> the gradient, divided by the number of ranks

They are called where gradients are, in a compiled step on JAX and TensorFlow. `names`: one for each tensor, the same on every rank.
Only the backend in use is imported: TensorFlow is not, on JAX or PyTorch.
"""

import functools
import warnings
from typing import Any, Callable, List, Tuple

import keras


# grouped_allreduce and scale_local
_Ways = Tuple[Callable[..., List[Any]], Callable[[Any, Any], Any]]


def _for_jax() -> _Ways:
    from horovod.jax import _programs
    from horovod.jax._ops import reduce_leaves

    def grouped_allreduce(tensors, names, op, compression, prescale_factor, postscale_factor, process_set):
        def unique(base: str) -> List[str]:  # "#2" for a second optimizer in the same program
            return [base + name for name in names]

        return reduce_leaves(list(tensors), unique, "keras", op, compression, prescale_factor, postscale_factor, process_set)

    def scale_local(gradient, process_set):
        _programs.note_dependence()
        return gradient / process_set.size()

    return grouped_allreduce, scale_local


def _for_torch() -> _Ways:
    import torch

    from horovod.torch import mpi_ops

    @torch.compiler.disable
    def grouped_allreduce(tensors, names, op, compression, prescale_factor, postscale_factor, process_set):
        if _is_done_by_keras():
            return list(tensors)
        packed = [compression.compress(tensor.detach()) for tensor in tensors]
        received = mpi_ops.grouped_allreduce(
            [value for value, _ in packed],
            name="keras" + names[0],
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )
        return [compression.decompress(value, context) for value, (_, context) in zip(received, packed)]

    return grouped_allreduce, lambda gradient, process_set: gradient / process_set.size()


_has_warned = False


def _is_done_by_keras() -> bool:
    """From 3.16 on Keras averages gradients itself, by DDP, where torch.distributed was initialised; twice would be wrong."""
    import torch.distributed

    global _has_warned
    numbers = tuple(int(part) for part in keras.__version__.split(".")[:2])
    if numbers < (3, 16) or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return False
    if not _has_warned:
        _has_warned = True
        warnings.warn(
            "torch.distributed is initialised, so Keras averages gradients by itself, and hvd.DistributedOptimizer does not. "
            "To have Horovod do it, do not initialise torch.distributed",
            stacklevel=2,
        )
    return True


def _for_tensorflow() -> _Ways:
    from horovod.tensorflow._reduce import keras_allreduce, scale_local

    return keras_allreduce, scale_local


def _compression_of(backend: str) -> Any:
    if backend == "jax":
        from horovod.jax.compression import Compression
    elif backend == "torch":
        from horovod.torch.compression import Compression
    else:
        from horovod.tensorflow.compression import Compression
    return Compression


def _choose() -> _Ways:
    choices = {"jax": _for_jax, "torch": _for_torch, "tensorflow": _for_tensorflow}
    if NAME not in choices:
        raise ImportError(
            f"horovod.keras works on Keras' backends {', '.join(choices)}, and this is {NAME!r}; set KERAS_BACKEND before "
            "keras is imported"
        )
    return choices[NAME]()


NAME: str = keras.backend.backend()
grouped_allreduce, scale_local = _choose()
Compression = _compression_of(NAME)
if NAME == "jax":  # where programs may still run that other ranks count on when this one leaves the job
    from horovod.jax import init, shutdown
else:
    from horovod.common.basics import init, shutdown  # noqa: F401


def reduction(sparse_as_dense: bool) -> Callable[..., List[Any]]:
    """Returns grouped_allreduce for an optimizer. Gradients of embeddings are dense anyway but on TensorFlow."""
    if sparse_as_dense and NAME == "tensorflow":
        return functools.partial(grouped_allreduce, sparse_as_dense=True)
    return grouped_allreduce


def why_not_compiled() -> str:
    """Returns why Keras must not have XLA compile steps with our operations on its own; "" where it may."""
    if NAME != "tensorflow":
        return ""
    from horovod.tensorflow._xla import why_not_compiled as of_tensorflow

    return of_tensorflow()
