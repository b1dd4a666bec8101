"""A rank of RayExecutor: it lives from start() to shutdown(), and calls one function after the other."""

import os
import pickle
import socket
import time
import traceback
from typing import Any

import cloudpickle

from horovod.ray import _payload, ray_logger
from horovod.ray._stream import KEY, SOCKET, Stream
from horovod.runner._called import call as call_function
from horovod.runner._called import present_rank

# What an actor asks for, and what a rank answers: the first word of a message. Before its answer a rank may send what the
# function logs.
MAKE, RUN, EXECUTE, STOP = b"make", b"run", b"execute", b"stop"
LOG, VALUE, ERROR = b"log", b"value", b"error"


class _Logs:
    """_Logs is where ray_logger.log() puts what it is given."""

    def __init__(self, actor: Stream) -> None:
        self._actor = actor

    def put(self, info: Any) -> None:
        self._actor.send(LOG + b" " + cloudpickle.dumps(info))


def serve() -> None:
    """Serves its actor until this says that it is enough. What a function raises is sent there, and ends the rank."""
    rank = int(os.environ["HVD_RANK"])
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + os.environ.pop(SOCKET))
        actor = Stream(connection, os.environ.pop(KEY), "rank", "actor")
        actor.send(str(rank).encode())
        ray_logger.configure(_Logs(actor))
        made: Any = None
        while True:
            kind, _, payload = actor.receive().partition(b" ")
            if kind == STOP:
                actor.send(VALUE)
                return
            try:
                value = _call(kind, payload, made)
                if kind == MAKE:
                    made, value = value, None
                answer = _payload.dumps(value)
            except Exception as error:
                from horovod.runner._job import describe_failure

                failure = describe_failure(error, rank, time.time(), traceback.format_exc())
                actor.send(ERROR + b" " + pickle.dumps(failure))
                raise
            actor.send(VALUE + b" %d " % present_rank() + answer)


def _call(kind: bytes, payload: bytes, made: Any) -> Any:
    func, args, kwargs = _payload.load(payload)
    return call_function(func, (made, *args) if kind == EXECUTE else args, kwargs)
