"""Horovod's place of a logger to which train functions pass news; its callbacks in the driver are not there."""

import warnings
from typing import Any, Dict

_has_warned = False


def configure(queue: Any) -> None:
    """Accepted: nothing here reads such a queue."""


def log(info: Dict[str, Any], chief_only: bool = True) -> None:
    """Does nothing but to warn once: what a rank prints reaches the driver, and what its function returns too."""
    global _has_warned
    if not _has_warned:
        _has_warned = True
        warnings.warn("horovod.ray.ray_logger.log() reaches nobody here; print what is to be seen, or return it", stacklevel=2)
