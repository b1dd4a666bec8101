"""Joining the job, and leaving it while JAX still runs programs that were started before."""

import atexit
import os
import sys
import threading
from typing import Any

import jax

from horovod.common import basics
from horovod.jax import _programs

# The time in seconds for running programs to end. One without an error ends within it, unless another rank never starts
# the same program; then it is cancelled.
_PATIENCE_S = 2.0

_exit_registered = False


def wait_for_programs() -> None:
    """JAX starts programs and goes on. One that other ranks count on must not be cancelled because the script is at its end."""

    def wait() -> None:
        for array in jax.live_arrays():
            try:
                array.block_until_ready()
            except Exception:
                pass  # the code that uses the result gets the error

    thread = threading.Thread(target=wait, name="hvd-shutdown", daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)


def init(comm: Any = None, process_sets: Any = None) -> None:
    """As basics.init; what it arranges for the program's end waits for programs that JAX still runs."""
    global _exit_registered
    basics.init(comm, process_sets)
    if not _exit_registered:
        _exit_registered = True
        owner = os.getpid()
        # This is registered last, so that it runs before what basics.init has registered.
        atexit.register(lambda: shutdown() if os.getpid() == owner else None)


init.__doc__ = basics.init.__doc__


def shutdown() -> None:
    """Leaves the job; `init` may be called again. Not an error when not initialised. Programs that run get two seconds to end.

    Operations that are pending then, here and on other ranks that need this one, fail.
    """
    if basics.is_initialized() and basics.size() > 1:
        wait_for_programs()
    basics.shutdown()
    failed = _programs.replace_failed()
    if failed is not None:  # whether the script has seen it, JAX does not tell
        print(f"horovod.jax: the last program that the script started had failed: {failed}", file=sys.stderr)
