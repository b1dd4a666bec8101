"""Collectives inside compiled programs: one custom call each, whose handler is in libhvd_xla."""

import ctypes
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple

import jax
import numpy as np

from horovod.common import _lib
from horovod.common._abi import lib
from horovod.jax import _gpus, _names

_TARGET = "hvd_xla_collective"
# XLA runs a program of up to 8 steps, or of steps with up to 512 bytes alone, one step after another. Ranks that come
# to two collectives in different orders would then wait for each other for ever. These steps, beside each of the two
# collectives, make the program larger.
_FILLERS, _FILLER_BYTES = 4, 1024
_is_registered = False
_depends_on_ranks = False


def _register() -> None:
    """Makes the handler known to XLA. ImportError where it is not installed."""
    global _is_registered
    if _is_registered:
        return
    path = os.path.join(os.path.dirname(lib._name), "libhvd_xla.so")
    if not os.path.isfile(path):
        raise ImportError(f"{path} was not found; install the package with pip, so that it lies beside libhvd.so")
    handlers = ctypes.CDLL(path)
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(handlers.hvd_xla_collective), platform="cpu")
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(handlers.hvd_xla_collective_on_device), platform="CUDA")
    _allow_recomputing()
    _is_registered = True


def _allow_recomputing() -> None:
    """Lets jax.checkpoint recompute a collective, which gives the same on all ranks. JAX refuses custom calls with side effects
    there, unless their effect is in a list that has no public name; without it, jax.checkpoint raises NotImplementedError."""
    try:
        from jax._src import effects, ffi

        effects.remat_allowed_effects.add_type(ffi.FfiEffect)
        effects.custom_derivatives_allowed_effects.add_type(ffi.FfiEffect)  # asked for by JAX 0.5
    except (ImportError, AttributeError):
        pass


def _check_platform() -> None:
    device = jax.config.jax_default_device
    platform = getattr(device, "platform", device) or jax.default_backend()
    if platform == "cpu" or (platform in ("gpu", "cuda") and _lib.has_devices()):
        return
    why = f" ({_lib.last_error()})" if platform in ("gpu", "cuda") else ""
    raise NotImplementedError(
        f"horovod.jax works inside jax.jit on CPUs and NVIDIA's GPUs only, and this program is for {platform!r}{why}. Call the "
        "collective outside of jit there, or set JAX_PLATFORMS=cpu"
    )


def note_dependence() -> None:
    """Notes that the program that is being traced holds for the present ranks only: their number, or that of a process set."""
    global _depends_on_ranks
    _depends_on_ranks = True


def has_any_that_depends_on_ranks() -> bool:
    """Returns whether a program of this process holds for the ranks only with which it was traced."""
    return _depends_on_ranks


def call(
    kind: int,
    leaves: Sequence[Any],
    names: Sequence[str],
    shapes: Optional[Sequence[Tuple[int, ...]]] = None,
    **attributes: Any,
) -> List[Any]:
    """The results of one call on all leaves. `shapes`: of the results, where they are not the leaves'.

    Attributes: op, root_rank, process_set (int), prescale, postscale (float).
    """
    _register()
    _check_platform()
    number = _gpus.number_for_program()
    if number:  # XLA tells the handler only from version 0.2 of its interface on
        attributes["device"] = number
    in_place = shapes is None
    results: List[Any] = []
    if _names.is_early_in_program():
        for _ in range(_FILLERS):
            jax.ffi.ffi_call(_TARGET, jax.ShapeDtypeStruct((_FILLER_BYTES,), np.uint8), has_side_effect=True)()
    for begin in range(0, len(leaves), _lib.MAX_GROUP):
        part = list(leaves[begin : begin + _lib.MAX_GROUP])
        of_part = [leaf.shape for leaf in part] if shapes is None else shapes[begin : begin + len(part)]
        values: Dict[str, Any] = {key: _attribute(value) for key, value in attributes.items()}
        aliases = {i: i for i in range(len(part))} if in_place else None
        run = jax.ffi.ffi_call(
            _TARGET,
            [jax.ShapeDtypeStruct(shape, leaf.dtype) for shape, leaf in zip(of_part, part)],
            has_side_effect=True,  # also one whose result nobody uses: other ranks wait for it
            vmap_method="broadcast_all" if in_place else "sequential",
            input_output_aliases=aliases,
        )
        results += run(*part, kind=np.int64(kind), names="\n".join(names[begin : begin + len(part)]), **values)
    return results


def replace_failed() -> Optional[Exception]:
    """Waits for the programs that this thread has started, and returns the error of the last one if it failed with one of ours.

    JAX keeps the end of the last program with effects on each device, and raises its error again when the interpreter ends.
    A program that does nothing then takes its place.
    """
    failed = None
    try:
        jax.effects_barrier()
    except Exception as error:
        failed = error if "[hvd " in str(error) else None
    if failed is None or not _is_registered:
        return None

    def nothing(value: Any) -> Any:
        jax.ffi.ffi_call(_TARGET, jax.ShapeDtypeStruct((1,), np.uint8), has_side_effect=True)()
        return value

    for device in jax.local_devices(backend="cpu"):
        jax.block_until_ready(jax.jit(nothing)(jax.device_put(np.uint8(0), device)))
    return failed


def _attribute(value: Any) -> Any:
    return np.float64(value) if isinstance(value, float) else np.int64(value)
