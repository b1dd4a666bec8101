"""The collectives and elastic training of one number and plain objects, as a front without a framework has them.

Scripts whose ranks come, go and meet again use it, since importing torch would be most of their time (a second of
processor time for each rank).
"""

import numpy as np

from horovod.common import _arrays, basics
from horovod.common._lib import MIN, SUM
from horovod.common.basics import init, local_rank, local_size, rank, size
from horovod.common.elastic import ObjectState, run_fn

__all__ = ["MIN", "SUM", "State", "allreduce", "init", "local_rank", "local_size", "rank", "run", "size"]


def allreduce(value, op=SUM, name=None):
    """A number's reduction over all ranks."""
    return float(_arrays.allreduce([np.array([value])], [name], op)[0][0])


class State(ObjectState):
    """Each argument is an attribute that all ranks share."""

    def __init__(self, **kwargs):
        super().__init__(_arrays.broadcast_object, rank, **kwargs)
        self.save()

    def sync(self):
        self._share(lambda root, ranks: self._share_objects(root, lambda own: _arrays.broadcast_object(own, root, "state", ranks)))


def run(train):
    return run_fn(train, reset)


def reset():
    basics.shutdown()
    basics.init()
