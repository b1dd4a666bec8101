"""What the ranks of a fit are told, which is too large for the function that starts them.

The driver puts it into the run's folder in the store. Only where it lies and its SHA-256 travel with the function, inside
the job's own session, so that ranks unpickle nothing that another writer of the store has put there.
"""

import hashlib
import pickle
import posixpath
import uuid
from dataclasses import dataclass
from typing import Any

import cloudpickle

from horovod.runner import _pickling


@dataclass(frozen=True)
class Ticket:
    """Where an order lies, and what it must be."""

    path: str
    digest: str


def send(store: Any, run_id: str, what: Any) -> Ticket:
    """Puts `what` into the store. TypeError names what cannot be pickled."""
    try:
        payload = _pickling.dumps(what)
    except Exception as error:
        raise TypeError(f"this cannot be sent to the processes that train: {describe(what, error)}") from error
    path = posixpath.join(store.get_run_path(run_id), f"order-{uuid.uuid4().hex}")
    store.write(path, payload)
    return Ticket(path, hashlib.sha256(payload).hexdigest())


def describe(what: Any, error: Exception) -> str:
    """Which attribute of `what` it is that cannot be pickled."""
    for name, value in vars(what).items() if hasattr(what, "__dict__") else ():
        try:
            cloudpickle.dumps(value)
        except Exception as own:
            return f"{name} ({own}); make what it refers to inside of it, or pass what can be pickled"
    return str(error)


def receive(store: Any, ticket: Ticket) -> Any:
    """In a rank."""
    payload = store.read(ticket.path)
    if hashlib.sha256(payload).hexdigest() != ticket.digest:
        raise RuntimeError(f"{ticket.path} is not what the driver has put there, and was not unpickled")
    return pickle.loads(payload)


def remove(store: Any, ticket: Ticket) -> None:
    """When the job has ended."""
    store.discard(ticket.path)
