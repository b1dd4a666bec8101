"""Gradients that backward has made and that wait to be started together.

torch runs the hooks of parameters on the host in the thread that called backward, and those of each GPU in a thread of that
GPU's: a model that has both, or is on several GPUs, is collected from several threads at once. A lock for each hook would cost
a third of it. So what a hook does is one append to a list, which no other thread interrupts, and the lock is for starts.
"""

import contextlib
import threading
from typing import Any, List, Optional, Set

import torch

from horovod.common import _lib, _wait, basics
from horovod.common.exceptions import HorovodInternalError
from horovod.torch._device import Place

# So many bytes are worth a start of their own while backward goes on with the rest.
_START_BYTES = 256 << 10
_NEVER = 1 << 62

_at_end_of_backward = torch.autograd.Variable._execution_engine.queue_callback
_number_of_backward = torch._C._current_graph_task_id  # -1 outside of it


class Collection:
    """What a reducer shares with the hooks, which live as long as the parameters: no reference back to the optimizer."""

    __slots__ = (
        "is_synchronized", "is_in_flight", "special", "places", "batch", "lock", "is_noted", "waiting_bytes", "failure",
        "start_bytes", "backward",
    )  # fmt: skip

    def __init__(self) -> None:
        self.is_synchronized = False
        self.is_in_flight = False  # whether any was started, or waits for the others of its group
        self.special: List[Any] = []  # those of them that are not reduced in their own memory
        self.places: Set[Place] = set()  # those of all that are in flight on GPUs
        # Those that are in no group; replaced by a larger one when there are more, but not while any is in flight.
        self.batch = _lib.Batch(0)
        # Guards what follows, and what of the batch is started. Python may call what needs it (an optimizer's end, a signal's
        # handler) in the middle of what has it.
        self.lock = threading.RLock()
        self.is_noted = False  # in _wait.collections
        self.waiting_bytes = 0  # of those that are not started; about, where several threads count
        self.failure: Optional[Exception] = None  # of a start: what was put with it may never be reduced
        # So many in the host's memory are started while backward goes on; decided when all ranks are there.
        self.start_bytes: Optional[int] = None
        self.backward = -1  # the last one at whose end all is started

    def collect(self, address: int, size_bytes: int, is_on_host: bool) -> None:
        """One more is there, by the address of its plan. Thread: any."""
        self.is_in_flight = True
        # In this order: a start in another thread says first that nothing is noted, and looks then what is there.
        self.batch.addresses.append(address)
        if not self.is_noted:
            self._note()
        self.waiting_bytes = waiting_bytes = self.waiting_bytes + size_bytes
        limit = self.start_bytes if is_on_host and self.start_bytes is not None else _START_BYTES
        if waiting_bytes >= limit:
            self.start_waiting(_lib.GOES_ON)

    def _note(self) -> None:
        """Something waits: it is started before any thread waits for something else, and when backward ends."""
        with self.lock:
            if not self.is_noted:
                _wait.collections.append(self)
                self.is_noted = True
        backward = _number_of_backward()
        if backward != self.backward:
            self.backward = backward
            if backward >= 0:
                _at_end_of_backward(self.start_at_end)

    def start_waiting(self, waits: int) -> None:
        """Starts all that wait to be. `waits`: as of Batch.start(). Thread: any."""
        with self.lock:
            self.forget_waiting()
            status = self.batch.start(waits)
        if status:
            self.failure = _lib.error_of(status)
            raise self.failure

    def start_now(self) -> None:
        """Some thread waits for something else."""
        self._start_noted(_lib.GOES_ON)

    def start_at_end(self) -> None:
        """Backward has ended. What comes next is most often the step: a thread that woke up for it would be in its way."""
        self._start_noted(_lib.WAITS_SOON)

    def _start_noted(self, waits: int) -> None:
        """A failure is for whoever waits for these."""
        with contextlib.suppress(ValueError, HorovodInternalError), self.lock:
            if self.is_noted:  # still: the step may have ended meanwhile, and the memory be another's
                self.start_waiting(waits)

    def forget_waiting(self) -> None:
        with self.lock:
            self.waiting_bytes = 0
            if self.is_noted:
                self.is_noted = False
                _wait.collections.remove(self)

    def clear(self) -> None:
        """None is in flight any more."""
        with self.lock:
            self.batch.clear()
        self.is_in_flight = False
        self.failure = None
        self.places.clear()

    def decide_start(self) -> None:
        """Only once all ranks are there: the cores of those that are bound to some are known then."""
        cores = _lib.feature(_lib.NODE_CORES)
        self.start_bytes = _NEVER if 0 < cores < 2 * basics.size() else _START_BYTES
