"""What the ranks of RayExecutor are sent: functions whose arguments may be Ray's references and actors."""

import os
import pickle
import sys
from typing import Any, Callable, Iterable, Mapping, Optional

from horovod.runner import _pickling
from horovod.runner._job import pickled_call

# The variable that tells a rank where its Ray is: its address, the address of the rank's node, and the namespace; a line each.
PLACE = "HVD_RAY"


def make_payload(func: Callable[..., Any], args: Optional[Iterable[Any]], kwargs: Optional[Mapping[str, Any]]) -> bytes:
    """Returns what a rank is sent. TypeError names what cannot be called or pickled."""
    import ray
    import ray.cloudpickle
    import ray.util.client.common

    of_ray = (ray.ObjectRef, ray.actor.ActorHandle)
    of_client = (ray.util.client.common.ClientObjectRef, ray.util.client.common.ClientActorHandle)
    found = []

    def look_at(value: Any) -> None:
        if isinstance(value, of_client):
            raise TypeError(
                f"{type(value).__name__}: a Ray Client's references and actors cannot be sent to ranks; send the value, or the "
                "actor's name for ray.get_actor()"
            )
        if isinstance(value, of_ray):
            found.append(value)

    # Ray's own pickler knows what it must do so that a reference outlives this.
    call = pickled_call(func, args, kwargs, lambda value: _pickling.dumps(value, ray.cloudpickle.Pickler, look_at))
    return pickle.dumps((sys.path, call, bool(found)))


def load(payload: bytes) -> Any:
    """Returns the function, its arguments and named arguments, on a rank; connected to Ray where they need or know it."""
    paths, call, needs_ray = pickle.loads(payload)
    sys.path += [path for path in paths if path not in sys.path]
    if needs_ray:
        connect()
    loaded = pickle.loads(call)
    if "ray" in sys.modules:  # the function's script has imported it, and may use it
        try:
            connect()
        except Exception as error:
            print(f"horovod.ray: this rank is not connected to Ray: {error}", file=sys.stderr, flush=True)
    return loaded


def connect() -> None:
    """Connects a rank to the Ray that has started it, in the namespace of the driver, unless it is connected."""
    import logging

    import ray

    if ray.is_initialized():
        return
    address, node, namespace = os.environ[PLACE].split("\n")
    ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level=logging.WARNING, _node_ip_address=node)


def dumps(value: Any) -> bytes:
    """Pickles what a rank returns."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return _pickling.dumps(value)
    import ray.cloudpickle

    return ray.cloudpickle.dumps(value)
