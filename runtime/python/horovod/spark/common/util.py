"""Small helpers that scripts take from Horovod's module of the same name."""

import hashlib
import os
import socket
from typing import Any, List, Optional

# The namespaces that differ between two containers of one machine. Processes that share these can share memory.
_NAMESPACES = ("ipc", "mnt", "net", "uts")


def host_hash(salt: Optional[str] = None) -> str:
    """A name for this machine and container, equal for processes that can share memory. `salt` makes another one of it."""
    parts = [socket.gethostname(), os.environ.get("CONTAINER_ID", ""), salt or ""]
    for name in _NAMESPACES:
        try:
            parts.append(os.readlink(f"/proc/self/ns/{name}"))
        except OSError:
            pass  # a kernel without it has one for all
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"{socket.gethostname().partition('.')[0]}-{digest[:32]}"


def to_list(value: Any, length: int) -> Optional[List[Any]]:
    """A list of `length`: one item stands for all. None stays None; ValueError where the number of items is another."""
    if value is None:
        return None
    items = value if isinstance(value, list) else [value]
    if len(items) == 1:
        return items * length
    if len(items) != length:
        raise ValueError(f"a list of {len(items)} is given where one item, or one of each of {length}, is expected")
    return items


def __getattr__(name: str) -> Any:
    """What is about DataFrames needs pyspark, which not everybody has who asks for the rest."""
    if name.startswith("__"):
        raise AttributeError(name)
    from horovod.spark.common import frames

    return getattr(frames, name)
