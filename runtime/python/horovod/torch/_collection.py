"""Gradients that backward has made and that wait to be started together, and what is done when backward ends.

torch runs the hooks of parameters on the host in the thread that called backward, and those of each GPU in a thread of that
GPU's: a model that has both, or is on several GPUs, is collected from several threads at once. A lock for each hook would cost
a third of it. So what a hook does is one append to a list, which no other thread interrupts, and the lock is for starts.
"""

import contextlib
import sys
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Set

import torch

from horovod.common import _lib, _wait, basics
from horovod.common.exceptions import HorovodInternalError
from horovod.torch._device import Place

# The number of bytes that is worth a start of its own while backward continues. On a device a start is a few launches, and the
# host, which is often late there, makes the same backward pass: DistributedDataParallel's buckets are as large.
_START_BYTES = 256 << 10
_DEVICE_START_BYTES = 25 << 20
_NEVER = 1 << 62

_at_end_of_backward = torch.autograd.Variable._execution_engine.queue_callback
_number_of_backward = torch._C._current_graph_task_id  # -1 outside of it
# The code that runs a torch.autograd.Function's backward. A backward pass below it is a part of another one.
_CODE_OF_FUNCTIONS = torch.autograd.function.BackwardCFunction.apply.__code__

# The collections with gradients of backward passes that have not ended. Any thread appends; removing needs the lock.
_open: List["Collection"] = []
_open_lock = threading.Lock()


def _is_within_another() -> bool:
    """Returns whether the ending backward pass is part of another one, as reentrant checkpointing makes them."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _CODE_OF_FUNCTIONS:
            return True
        frame = frame.f_back
    return False


def _end_backward() -> None:
    """Completes what the ending backward pass has made. All of its optimizers are started before the first is waited
    for: ranks may come to them in different orders.

    What a pass within another one has made is only started, and what several passes make at the same time, in threads, is
    completed by the last of them.
    """
    number = _number_of_backward()
    with _open_lock:
        ending = [collection for collection in _open if number in collection.backwards]
        for collection in ending:
            collection.backwards.discard(number)
        complete = [] if ending and _is_within_another() else [c for c in ending if not c.backwards]
        _open[:] = [collection for collection in _open if collection.backwards]
    failure: Optional[BaseException] = None
    completed = []
    for collection in ending:
        owner = collection.owner()
        if owner is None or collection not in complete:
            collection.start_at_end()
            if owner is not None:
                owner.note_versions()
            continue
        try:
            owner.start_all(is_step=False)
            completed.append(owner)
        except BaseException as error:
            failure = failure or error
    for owner in completed:
        try:
            owner.complete()
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure


class Collection:
    """Collection is what a reducer shares with the hooks. These live as long as the parameters, so it has no reference
    back to the optimizer.

    Args:
        owner: gives the reducer, or None when it is gone.
    """

    __slots__ = (
        "owner", "is_synchronized", "is_by_user", "reduced", "is_in_flight", "special", "casts", "places", "batch", "lock", "is_noted",
        "waiting_bytes", "failure", "start_bytes", "backward", "backwards",
    )  # fmt: skip

    def __init__(self, owner: Callable[[], Any]) -> None:
        self.owner = owner
        self.is_synchronized = False  # since the last step or zero_grad, with no gradient made after it
        self.is_by_user = False  # the user has asked for that
        # What was reduced since then, where nothing may be added to it: by other operators than Average. It refers weakly.
        self.reduced: Dict[Any, "weakref.ref[torch.Tensor]"] = {}
        self.is_in_flight = False  # whether any was started, or waits for the others of its group
        self.special: List[Any] = []  # the gradients in flight that are not reduced in their own memory
        self.casts: List[Any] = []  # gradients in flight in another type: with the tensor of it, and its place
        self.places: Set[Place] = set()  # the devices and streams of the operations in flight on GPUs
        # The gradients that are in no group. It is replaced by a larger one when there are more, but not while any is
        # in flight.
        self.batch = _lib.Batch(0)
        # Guards the members below and the starts of the batch. It is reentrant, because Python may run code that needs
        # it (an optimizer's finalizer, a signal handler) in the middle of code that holds it.
        self.lock = threading.RLock()
        self.is_noted = False  # in _wait.collections
        self.waiting_bytes = 0  # of gradients not started yet; approximate if several threads count
        self.failure: Optional[Exception] = None  # of a start; gradients that were put with it may never be reduced
        # The number of bytes in the host's memory to start while backward continues; decided when all ranks are there.
        self.start_bytes: Optional[int] = None
        self.backward = -1  # the last backward pass that was entered
        self.backwards: Set[int] = set()  # those that were entered and have not ended

    def collect(self, address: int, size_bytes: int, is_on_host: bool) -> None:
        """Notes that one more gradient is there, by the address of its plan. Thread: any."""
        self.is_in_flight = True
        # The order matters: a start in another thread first clears is_noted, and then looks at what is there.
        self.batch.addresses.append(address)
        if not self.is_noted:
            self._note()
        self.waiting_bytes = waiting_bytes = self.waiting_bytes + size_bytes
        limit = _DEVICE_START_BYTES if not is_on_host else _START_BYTES if self.start_bytes is None else self.start_bytes
        if waiting_bytes >= limit:
            self.start_waiting(_lib.GOES_ON)

    def _note(self) -> None:
        """Notes that something waits. It is started before any thread waits for something else, and when backward
        ends."""
        with self.lock:
            if not self.is_noted:
                _wait.collections.append(self)
                self.is_noted = True
        self.enter_backward()

    def enter_backward(self) -> None:
        """Tells that a gradient comes. If that happens in a backward pass, the end of the pass completes all
        gradients."""
        backward = _number_of_backward()
        if backward == self.backward:
            return
        self.backward = backward
        if backward >= 0:
            with _open_lock:
                self.backwards.add(backward)
                if self not in _open:
                    _open.append(self)
            _at_end_of_backward(_end_backward)

    def start_waiting(self, waits: int) -> None:
        """Starts everything that waits to be started. `waits` has its meaning in Batch.start(). Thread: any."""
        with self.lock:
            self.forget_waiting()
            status = self.batch.start(waits)
        if status:
            self.failure = _lib.error_of(status)
            raise self.failure

    def start_now(self) -> None:
        """Starts what waits, because some thread waits for something else."""
        self._start_noted(_lib.GOES_ON)

    def start_at_end(self) -> None:
        """Starts what waits at the end of a backward pass while others go on. A thread that woke up for this would
        disturb them."""
        self._start_noted(_lib.WAITS_SOON)

    def _start_noted(self, waits: int) -> None:
        """Starts what is noted. A failure is raised where these gradients are waited for."""
        with contextlib.suppress(ValueError, HorovodInternalError), self.lock:
            if self.is_noted:  # if not, the step has ended meanwhile, and its memory may be reused
                self.start_waiting(waits)

    def forget_waiting(self) -> None:
        with self.lock:
            self.waiting_bytes = 0
            if self.is_noted:
                self.is_noted = False
                _wait.collections.remove(self)

    def clear(self) -> None:
        """Forgets all, when nothing is in flight any more."""
        with self.lock:
            self.batch.clear()
        self.is_in_flight = False
        self.failure = None
        self.places.clear()
        self.backward = -1
        if self.backwards:  # left from passes that have failed, and so never end
            with _open_lock:
                self.backwards.clear()
                if self in _open:
                    _open.remove(self)

    def decide_start(self) -> None:
        """Decides once all ranks are there, because only then it is known which cores ranks are bound to."""
        cores = _lib.feature(_lib.NODE_CORES)
        self.start_bytes = _NEVER if 0 < cores < 2 * basics.size() else _START_BYTES


# ---- the hooks themselves ----


class NodeHook:
    """NodeHook calls a parameter's hook when its gradient has been added up, with torch before 2.1; or before that. It keeps the
    node of the graph that adds, which torch makes again when nobody does."""

    def __init__(self, p: torch.Tensor, hook: Callable[[torch.Tensor], None], is_before: bool = False) -> None:
        parameter = weakref.ref(p)  # the node has the parameter already, and a hook that had it too would keep both
        with torch.enable_grad():
            self._node = p.view_as(p).grad_fn.next_functions[0][0]
        register = self._node.register_prehook if is_before else self._node.register_hook
        self._handle = register(lambda *_: hook(parameter()))

    def remove(self) -> None:
        self._handle.remove()


def add_hook(p: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> Any:
    """Calls the hook from now on when the gradient of the parameter has been added up. Returns what removes it."""
    if hasattr(p, "register_post_accumulate_grad_hook"):
        return p.register_post_accumulate_grad_hook(hook)
    return NodeHook(p, hook)
