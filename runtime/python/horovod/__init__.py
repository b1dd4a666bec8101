"""Distributed training with the names that Horovod scripts import; start the ranks with `hvdrun`.

`import horovod.torch as hvd` is the front for PyTorch, `horovod.tensorflow` for TensorFlow,
`horovod.jax` for JAX, `horovod.keras` for Keras 3; `horovod.run` runs a Python function on several ranks. This package
was never compiled against a framework: it calls libhvd through its C interface.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from horovod.runner import run as run

# The release of Horovod whose interface this package has, because scripts compare it with what they need.
__version__ = "0.28.1"
# The release of this package, which `hvdrun --version` tells too.
hvdrun_version = "0.1.0"


def __getattr__(name: str) -> object:
    # Ranks import this package too, and do not need the part that starts jobs.
    if name == "run":
        from horovod.runner import run

        return run
    raise AttributeError(f"module 'horovod' has no attribute {name!r}")
