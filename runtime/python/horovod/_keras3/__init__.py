"""What horovod.keras is with Keras 3: on JAX, PyTorch or TensorFlow, with the same code. horovod.tensorflow.keras has parts of it."""

import warnings as _warnings
from typing import Any, Optional

import keras as _keras
import numpy as _np

from horovod.common import _arrays, _auto_jit, _exports, _old_keras, _optimizer_makers
from horovod.common._exports import *
from horovod.common._keras_optimizer import is_distributed
from horovod.common.util import choose_op as _choose_op
from horovod._keras3 import _h5, callbacks, elastic
from horovod._keras3._backend import Compression, init, shutdown  # noqa: F401  (two in place of those that every front has)
from horovod._keras3._backend import why_not_compiled as _why_not_compiled
from horovod._keras3._optimizer import DistributedOptimizer, PartialDistributedOptimizer, steps_for_all
from horovod._keras3._variables import broadcast_variables

_old_keras.accept(_keras, _why_not_compiled)

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "elastic",
    "load_model",
    "reducescatter",
    "steps_for_all",
]
__all__ += _exports.__all__

broadcast_object = _arrays.broadcast_object
allgather_object = _arrays.allgather_object


def _value(value: Any) -> _np.ndarray:
    return _np.asarray(_keras.ops.convert_to_numpy(value))


def _tensor(array: _np.ndarray) -> Any:
    return _keras.ops.convert_to_tensor(array)


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Any = Compression.none,
) -> Any:
    """The reduction of a value over all ranks, as a tensor of the backend. Outside of compiled functions; there, gradients are what
    DistributedOptimizer is for.

    Raises:
        HorovodInternalError: ranks disagree, or one is gone; on every rank.
    """
    chosen = _choose_op(op, average)
    sent, context = compression.compress(_tensor(_value(value)))
    (result,) = _arrays.allreduce([_value(sent)], [name], chosen, prescale_factor, postscale_factor)
    return compression.decompress(_tensor(result), context)


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """All ranks' values behind each other along dimension 0, in which they may differ. Errors: as `allreduce`."""
    return _tensor(_arrays.allgather(_value(value), name))


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """The root's value. Errors: as `allreduce`."""
    return _tensor(_arrays.broadcast([_value(value)], [name], root_rank)[0])


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    """This rank's rows of the reduction. Errors: as `allreduce`."""
    return _tensor(_arrays.reducescatter(_value(value), name, op))


def broadcast_global_variables(root_rank: int) -> None:
    """Is refused: Keras 3 has no global variables.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(
        "hvd.broadcast_global_variables() works on TensorFlow 1's graphs only. Use hvd.callbacks.BroadcastGlobalVariablesCallback"
        f"({root_rank}), or hvd.broadcast_variables(model.weights, root_rank={root_rank})"
    )


def _warn_of_passes(optimizer: Any) -> None:
    """Says that a loaded optimizer, which is not that of a LossScaleOptimizer, takes the mean of several passes."""
    passes = getattr(optimizer, "gradient_accumulation_steps", None)
    if passes:
        _warnings.warn(
            f"the optimizer of the loaded model has gradient_accumulation_steps={passes}, and steps by the mean of so many passes. "
            f"hvd.DistributedOptimizer(backward_passes_per_step={passes}) steps by their sum, unless it was given "
            "average_aggregated_gradients=True. If the model was trained by the sum, compile it again with "
            f"hvd.DistributedOptimizer(optimizer, backward_passes_per_step={passes}) of a new optimizer",
            stacklevel=3,
        )


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """A model from a file, whose optimizer is a DistributedOptimizer with the state that was saved. The file may come from a
    script without Horovod, and one that is saved here loads without it. The file does not say whether passes were added up, so a
    warning tells of gradient_accumulation_steps.

    Args:
        filepath: of the file, or an open h5py.File.
        custom_optimizers: classes of optimizers that are not Keras' own.
        custom_objects: as keras.saving.load_model has them.
        compression: as DistributedOptimizer.
        legacy_opts: is there for Horovod's scripts.
    """
    filepath = getattr(filepath, "filename", filepath)  # Keras 3 takes no h5py.File
    objects = {cls.__name__: cls for cls in custom_optimizers or ()}
    objects.update(custom_objects or {})
    registered = _keras.saving.get_custom_objects()
    with _optimizer_makers.called(objects, filepath, _keras.saving.deserialize_keras_object, registered) as objects:
        model = _keras.saving.load_model(filepath, custom_objects=objects)
    _h5.restore_optimizer(model, filepath)
    if getattr(model, "optimizer", None) is not None and not is_distributed(model.optimizer):
        _warn_of_passes(getattr(model.optimizer, "inner_optimizer", model.optimizer))
        DistributedOptimizer(model.optimizer, compression=compression)  # in place: its state stays
        _auto_jit.decide_for_loaded(model, _why_not_compiled)
    return model
