"""Keras' jit_compile="auto": with a GPU, Keras has XLA compile the steps on TensorFlow, though the script did not ask for it.
Where our operations cannot be compiled, it is decided here that they are not."""

import inspect
import warnings
from typing import Any, Callable, Dict, Sequence, Tuple

from horovod.common.basics import is_initialized, size


def _warn(why: str) -> None:
    warnings.warn(
        f"the steps of this model are not compiled by XLA, as Keras would have it, because {why}; "
        "model.compile(jit_compile=False) says so without this line",
        stacklevel=4,
    )


def _has_ours(model: Any, optimizer: Any) -> bool:
    """Whether a model's steps have our operations: its optimizer is ours, or it may be its own train_step that reduces, as a
    hvd.DistributedGradientTape does."""
    is_own_step = type(model).train_step.__module__.partition(".")[0] != "keras"
    return hasattr(optimizer, "_hvd") or (is_own_step and is_initialized() and size() > 1)


def decide(
    model: Any, signature: inspect.Signature, args: Sequence[Any], kwargs: Dict[str, Any], why_not: Callable[[], str]
) -> Tuple[Sequence[Any], Dict[str, Any]]:
    """Returns the arguments of a `compile`, with jit_compile=False where one whose steps have our operations leaves it to
    Keras and XLA cannot compile.

    Args:
        signature: of Keras' compile.
        args, kwargs: its arguments but for the model.
        why_not: says why XLA cannot compile; "" where it can.
    """
    given = signature.bind(model, *args, **kwargs)
    given.apply_defaults()
    words = given.arguments
    if words.get("jit_compile") != "auto" or words.get("run_eagerly") or not _has_ours(model, words["optimizer"]):
        return args, kwargs
    why = why_not()
    # Some releases of Keras decide it elsewhere, and some compile on CPUs too.
    if not why or not getattr(model, "_resolve_auto_jit_compile", lambda: True)():
        return args, kwargs
    _warn(why)
    words["jit_compile"] = False
    return given.args[1:], given.kwargs


def decide_for_loaded(model: Any, why_not: Callable[[], str]) -> None:
    """Has a loaded model not compiled where XLA cannot: the file says what Keras had decided where it was saved."""
    why = why_not()
    if why and model.jit_compile:
        model.jit_compile = False
        _warn(why)
