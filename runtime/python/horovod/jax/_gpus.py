"""Which of the node's GPUs are this rank's."""

import contextlib
import os
from typing import List, Sequence

import jax

# hvdrun sets it; JAX itself reads it in jax.distributed.initialize() only.
_OWN = "JAX_LOCAL_DEVICE_IDS"
# JAX's options, and the variables that say which GPUs there are for the process.
_OPTIONS = {
    "jax_cuda_visible_devices": ("CUDA_VISIBLE_DEVICES",),
    "jax_rocm_visible_devices": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
}


def take_own() -> None:
    """Has JAX see this rank's GPUs alone. JAX takes all of the node otherwise, with most of their memory, and computes on the first. It
    has no effect once JAX has used a device, and none where the script has chosen itself, by JAX's option or by the variable."""
    own = os.environ.get(_OWN, "").replace(" ", "").split(",")
    for option, variables in _OPTIONS.items():
        if all(number.isdigit() for number in own) and _are_there(own, variables):
            with contextlib.suppress(AttributeError, LookupError):  # a JAX without this option
                if jax.config.read(option) == "all":
                    jax.config.update(option, ",".join(own))


def _are_there(numbers: Sequence[str], variables: Sequence[str]) -> bool:
    counts: List[int] = [len(os.environ[name].split(",")) for name in variables if name in os.environ]
    return all(int(number) < count for number in numbers for count in counts)


def number_for_program() -> int:
    """The number of the GPU that a program is for; 0 on CPUs."""
    if jax.default_backend() == "cpu":
        return 0
    device = jax.config.jax_default_device
    if not hasattr(device, "local_hardware_id"):
        device = jax.local_devices()[0]
    return device.local_hardware_id or 0
