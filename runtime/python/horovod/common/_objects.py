"""How Python objects travel between ranks: pickled, behind a proof that a rank of this job has sent them so.

Unpickling runs code, and what comes over a plain link may have been changed on its way. So no front unpickles anything
that this module has not checked.
"""

import hmac
from typing import Any, Optional

import cloudpickle
import numpy as np

from horovod.common import _lib
from horovod.common.exceptions import HorovodInternalError


def broadcast_of(root_rank: int, name: Optional[str], process_set: Optional[int]) -> str:
    """Returns whose object it is, and which. The proof covers this text, so that no other object passes for it."""
    return f"broadcast_object {name or ''} of rank {root_rank} in process set {process_set}"


def allgather_of(rank: int, name: Optional[str], process_set: Optional[int]) -> str:
    """Returns the same for the object of one rank of all."""
    return f"allgather_object {name or ''} of rank {rank} in process set {process_set}"


def _proof(payload: np.ndarray, what: str) -> bytes:
    """Returns what only a rank of this job can compute of the pickled object."""
    return _lib.mac_of_bytes(what.encode() + _lib.mac(payload.ctypes.data, payload.nbytes))


def sealed(obj: Any, what: str) -> np.ndarray:
    """Returns the pickled object after its proof, as bytes."""
    pickled = np.frombuffer(cloudpickle.dumps(obj), np.uint8)
    whole = np.empty(_lib.MAC_BYTES + pickled.size, np.uint8)
    whole[_lib.MAC_BYTES :] = pickled
    whole[: _lib.MAC_BYTES] = np.frombuffer(_proof(whole[_lib.MAC_BYTES :], what), np.uint8)
    return whole


def opened(whole: np.ndarray, what: str) -> Any:
    """Returns the object, after a check that a rank of this job has sent it as this one. The bytes are contiguous."""
    payload = whole[_lib.MAC_BYTES :]
    if not hmac.compare_digest(whole[: _lib.MAC_BYTES].tobytes(), _proof(payload, what)):
        raise HorovodInternalError(
            f"{what}: what came was not sent so by a rank of this job, and was not unpickled; something on the way has "
            "changed it, or the ranks' calls differ"
        )
    return cloudpickle.loads(payload)
