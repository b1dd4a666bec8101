"""What torch.distributed is given for an operation that goes on: Work objects of the backend "hvd", and messages between
two ranks.
"""

import atexit
import queue
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch._C._distributed_c10d import Work
from torch.futures import Future

from horovod.common import basics
from horovod.torch import mpi_ops


class LaterWork(Work):
    """Operations in flight. Ends in the thread that waits for it; or, when its future is asked for, in a thread of its own,
    since torch (DistributedDataParallel, above all) then waits for the future and not for this.

    Args:
        handles: of the operations.
        finish: makes the result, a list of tensors, of what these give.
    """

    def __init__(self, handles: Sequence[int], finish: Callable[[List[Any]], Any]) -> None:
        super().__init__()
        self._handles = handles
        self._finish: Optional[Callable[[List[Any]], Any]] = finish
        self._lock = threading.Lock()  # guards what follows
        self._is_over = False
        self._result: Any = None
        self._error: Optional[Exception] = None
        self._future: Optional[Future] = None

    def complete(self) -> None:
        """Waits for the operations, once."""
        with self._lock:
            if self._is_over:
                return
            results = []
            for handle in self._handles:  # all, so that none works on memory any more
                try:
                    results.append(mpi_ops.synchronize(handle))
                except Exception as error:
                    self._error = self._error or error
            try:
                if self._error is None:
                    self._result = self._finish(results)
            except Exception as error:
                self._error = error
            self._is_over, self._finish = True, None

    def _would_wait(self) -> bool:
        return not all(mpi_ops.poll(handle) for handle in self._handles)

    def wait(self, timeout: Any = None) -> bool:
        self.complete()
        if self._error is not None:
            raise self._error
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        if self._lock.acquire(blocking=False):
            try:
                if not self._is_over and self._would_wait():
                    return False
            finally:
                self._lock.release()
            self.complete()
        return self._is_over

    def is_success(self) -> bool:
        return self._is_over and self._error is None

    def exception(self) -> Optional[Exception]:
        return self._error

    def result(self) -> Any:
        self.wait()
        return self._result

    def get_future(self) -> Future:
        if self._future is None:
            self._future = Future()
            _complete_later(self)
        return self._future

    def set_future(self) -> None:
        """When it is over."""
        if self._error is None:
            self._future.set_result(self._result)
        else:
            self._future.set_exception(self._error)


class _Futures:
    """A thread that completes each work and sets its future, in order."""

    def __init__(self) -> None:
        self._works: "queue.SimpleQueue[Optional[LaterWork]]" = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._complete_all, name="hvd-futures", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def put(self, work: LaterWork) -> None:
        self._works.put(work)

    def is_alive(self) -> bool:
        """Not in a forked child."""
        return self._thread.is_alive()

    def _complete_all(self) -> None:
        while (work := self._works.get()) is not None:
            work.complete()
            work.set_future()
            del work  # and the tensors with it

    def _end(self) -> None:
        """A thread that comes back from torch while Python finalises ends the process by std::terminate: setting a future
        takes Python's lock where nothing may be thrown, and Python ends whoever asks for the lock by then."""
        if not self.is_alive():
            return
        self._works.put(None)
        self._thread.join(1.0)
        if self._thread.is_alive():
            basics.shutdown()  # it waits for ranks that may never come; now its operations fail
            self._thread.join(10.0)


_futures: Optional[_Futures] = None


def _complete_later(work: LaterWork) -> None:
    global _futures
    if _futures is None or not _futures.is_alive():
        _futures = _Futures()
    _futures.put(work)


def later_in_place(tensors: Sequence[torch.Tensor], start: Callable[[torch.Tensor], int]) -> LaterWork:
    """Operations that leave their results in the tensors; `start` gives a handle."""
    memory = [tensor.detach().contiguous() for tensor in tensors]  # itself, where it is contiguous

    def finish(_: List[Any]) -> List[torch.Tensor]:
        for tensor, result in zip(tensors, memory):
            if result.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(result)
        return list(tensors)

    return LaterWork([start(t) for t in memory], finish)


def later_into(output: torch.Tensor, handle: int) -> LaterWork:
    """An operation whose result is copied into `output`, whatever its shape."""

    def finish(results: List[Any]) -> List[torch.Tensor]:
        output.detach().copy_(results[0].view(output.shape))
        return [output]

    return LaterWork([handle], finish)


class Mailbox:
    """Messages between two ranks, by the store at which torch's ranks meet: for what is said now and then. An operation of
    libhvd is one of all ranks of a process set, and two that want to speak cannot make a set by themselves."""

    def __init__(self, store: Any, rank: int) -> None:
        self._store = store
        self._rank = rank
        self._counts: Dict[Tuple[int, int, int], int] = {}  # of messages, by sender, receiver, tag

    def _next_key(self, sender: int, receiver: int, tag: int) -> str:
        number = self._counts[sender, receiver, tag] = self._counts.get((sender, receiver, tag), 0) + 1
        return f"hvd/message/{sender}/{receiver}/{tag}/{number}"

    def send(self, tensor: torch.Tensor, receiver: int, tag: int) -> None:
        data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        self._store.set(self._next_key(self._rank, receiver, tag), data)

    def receive(self, tensor: torch.Tensor, sender: int, tag: int) -> LaterWork:
        return _Received(self._store, self._next_key(sender, self._rank, tag), tensor, sender)


class _Received(LaterWork):
    def __init__(self, store: Any, key: str, tensor: torch.Tensor, sender: int) -> None:
        super().__init__([], self._take)
        self._store, self._key, self._tensor, self._sender = store, key, tensor, sender

    def _would_wait(self) -> bool:
        return not self._store.check([self._key])

    def _take(self, _: List[Any]) -> List[torch.Tensor]:
        tensor = self._tensor.detach()
        data = bytearray(self._store.get(self._key))
        self._store.delete_key(self._key)
        if len(data) != tensor.nbytes:
            raise ValueError(f"recv: rank {self._sender} has sent {len(data)} bytes, and {tensor.nbytes} are expected here")
        if data:
            received = torch.frombuffer(data, dtype=torch.uint8).view(tensor.dtype)
            tensor.copy_(received.view(tensor.shape))
        return [self._tensor]
