"""Leaving the job while JAX still runs programs that were started before."""

import atexit
import os
import threading

import jax

from horovod.common import basics

# What runs without an error ends within it, unless another rank never starts the same program; then it is cancelled.
_PATIENCE_S = 2.0


def _wait_for_programs() -> None:
    """JAX starts programs and goes on. One that other ranks count on must not be cancelled because the script is at its end."""

    def wait() -> None:
        try:
            jax.block_until_ready(jax.live_arrays())
            jax.effects_barrier()
        except Exception:
            pass  # whoever uses the result is told

    thread = threading.Thread(target=wait, name="hvd-shutdown", daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)


def shutdown() -> None:
    """Leaves the job; `init` may be called again. Not an error when not initialised. Programs that run get two seconds to end.

    Operations that are pending then, here and on other ranks that need this one, fail.
    """
    if basics.is_initialized() and basics.size() > 1:
        _wait_for_programs()
    basics.shutdown()


_owner = os.getpid()
# Functions that are registered later run earlier: before JAX's own, and before the one that hvd.init registers only if that
# was called before this import, which changes nothing for a script that has just begun.
atexit.register(lambda: shutdown() if os.getpid() == _owner else None)
