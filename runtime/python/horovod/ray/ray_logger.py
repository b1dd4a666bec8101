"""What a train function tells the callbacks of RayExecutor.run() in the driver."""

import warnings
from typing import Any

from horovod.runner._called import present_rank

_queue: Any = None
_has_warned = False


def configure(queue: Any) -> None:
    """log() puts what it is given into `queue`. RayExecutor does this in its ranks."""
    global _queue
    _queue = queue


def log(info_dict: Any, chief_only: bool = False) -> None:
    """Sends `info_dict` to the callbacks, where the function was called with any.

    Args:
        info_dict: what cloudpickle can carry; a dict by custom.
        chief_only: only rank 0 sends it. Horovod had this argument for a time, and True was its default; since then every rank
            sends, and those scripts that want less ask for the rank.
    """
    global _has_warned
    if _queue is None:
        if not _has_warned:
            _has_warned = True
            warnings.warn("horovod.ray.ray_logger.log() reaches nobody here: this is no rank of a RayExecutor", stacklevel=2)
    elif not chief_only or present_rank() == 0:
        _queue.put(info_dict)
