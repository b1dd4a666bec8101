"""Work objects of the backend "hvd": what torch.distributed gets for an operation that goes on.

An operation is completed by the thread that waits for it; or by one of ours, when its future was asked for (torch waits for
that then, above all DistributedDataParallel) or nobody holds its Work any more. Ours take whichever ends next. What a script
has hung on a future runs in them and may wait for other operations: another thread is there to complete those.

Such a callback may also start operations, at a moment that is another one on each rank. They cannot be matched by their number in
the group, and go by names that tell which callback of which operation they are of.
"""

import atexit
import collections
import contextlib
import itertools
import os
import sys
import threading
import time
from datetime import timedelta
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Sequence

import torch
from torch._C._distributed_c10d import Work
from torch.futures import Future

from horovod.common import _failure, _lib, basics
from horovod.torch import _limits, mpi_ops
from horovod.torch._handles import library_handle
from horovod.torch._tensors import as_was

# A thread that has been idle for this many seconds ends.
_LINGER_S = 0.2


class Context:
    """Context is a callback: the operations that it starts have numbers of their own."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._count = itertools.count()

    def next_path(self) -> str:
        """Returns the path of the next operation."""
        return f"{self.path}.{next(self._count)}"


class _Running(threading.local):
    context: Optional[Context] = None


_running = _Running()


def context() -> Optional[Context]:
    """Returns the callback that this thread runs."""
    return _running.context


@contextlib.contextmanager
def _within(entered: Context) -> Iterator[None]:
    before, _running.context = _running.context, entered
    try:
        yield
    finally:
        _running.context = before


def _mark() -> Optional[torch.cuda.Event]:
    """Marks the end of what this thread has given its GPU; None where torch uses no GPU."""
    if not torch.cuda.is_initialized():
        return None
    event = torch.cuda.Event()
    event.record()
    return event


class Operation:
    """Operation stands for operations of the library that were asked for as one, until they have ended.

    Args:
        handles: of the operations; None: they are started later, by `begin`.
        finish: makes the result, a list of tensors, of what these give.
    """

    def __init__(self, handles: Optional[Sequence[int]], finish: Callable[[List[Any]], Any]) -> None:
        self.is_over = False
        self.result: Any = None
        self.error: Optional[BaseException] = None
        self.limit: Optional[_limits.Entry] = None
        self.path = ""  # the operation's name, the same on every rank; empty until it has one
        self._handles = handles
        self._finish: Optional[Callable[[List[Any]], Any]] = finish
        self._has_begun = threading.Event() if handles is None else None
        self._completing = threading.Lock()  # held by the thread that waits for the operation
        self._lock = threading.Lock()  # guards the members below; held only briefly
        self._is_served = False
        self._future: Optional[_Future] = None
        self._ended = threading.Event()
        # A thread of ours completes it on the stream of who has asked for it; who waits on another stream waits for the mark.
        self._stream = torch.cuda.current_stream() if torch.cuda.is_initialized() else None
        self._mark: Optional[torch.cuda.Event] = None

    def begin(self, handles: Sequence[int], error: Optional[BaseException] = None) -> None:
        """Starts them now, or notes why they cannot be started."""
        with self._lock:
            self._handles, self.error = handles, error
            is_served = self._is_served
        self._has_begun.set()
        if is_served:
            _server().put(self)

    @property
    def has_begun(self) -> bool:
        return self._handles is not None

    @property
    def handles(self) -> Sequence[int]:
        return self._handles or ()

    def would_wait(self) -> bool:
        return not self.is_over and (not self.has_begun or not all(map(_is_done, self.handles)))

    def complete(self) -> None:
        """Waits for the operations, once."""
        if self._has_begun is not None:
            self._has_begun.wait()
        with self._completing:
            if self.is_over:
                if self._mark is not None:
                    self._mark.wait()
                return
            results = []
            for handle in self.handles:  # all, so that none works on memory any more
                try:
                    results.append(mpi_ops.synchronize(handle))
                except Exception as error:
                    self.error = self.error or error
            try:
                if self.error is None:
                    self.result = self._finish(results)
            except Exception as error:
                self.error = error
            if self.limit is not None:
                self.error = self.limit.end(self.error)
            self._mark = _mark()
            self.is_over, self._finish = True, None

    def serve(self) -> None:
        """Lets a thread of ours complete it, even if nobody waits."""
        with self._lock:
            if self._is_served:
                return
            self._is_served = True
            has_begun = self.has_begun
        if has_begun:
            _server().put(self)

    def end(self) -> None:
        """Completes it on a thread of ours, and calls those who wait for its future."""
        with contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            self.complete()
            with self._lock:
                future, self._future = self._future, None
                self._ended.set()
            if future is not None:
                self._set(future)

    def wait_for(self, seconds: float) -> bool:
        """Returns whether it has ended by then; otherwise it goes on."""
        self.serve()
        return self._ended.wait(seconds)

    def future(self) -> "_Future":
        """Returns a future that a thread of ours completes."""
        with self._lock:
            future = self._future
            is_new = future is None
            if is_new:
                future = _Future(self, self.path)
                is_ended = self._ended.is_set()
                self._future = None if is_ended else future
        if is_new and is_ended:
            self._set(future)
        self.serve()
        return future

    def _set(self, future: Future) -> None:
        if self.error is None:
            future.set_result(self.result)
        else:
            future.set_exception(self.error)


def _is_done(handle: int) -> bool:
    try:
        return mpi_ops.poll(handle)
    except ValueError:
        return True  # somebody is just completing it


class _Failure:
    """_Failure is what the future of a failed operation holds. torch's C++ code takes a future's value for tensors without
    asking whether there is an error, and looks for them by pickle or, after a hook, as text: both raise the error. That code
    passes on only the error's text."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise _failure.marked(self.error)

    def __str__(self) -> str:
        raise _failure.marked(self.error)


def _raise_failure(failure: _Failure) -> None:
    raise failure.error


class _Future(Future):
    """_Future is the future of an operation, or of a callback that follows one. Ctrl-C ends the wait for it, since the
    waiting thread completes the operation."""

    def __init__(self, operation: Operation, path: str) -> None:
        super().__init__()
        self._operation = operation
        self._path = path
        self._callbacks = itertools.count()
        self._mark: Optional[torch.cuda.Event] = None  # of a callback's end

    def wait(self) -> Any:
        self._operation.complete()
        value = super().wait()
        if self._mark is not None:
            self._mark.wait()
        return value

    def set_exception(self, error: BaseException) -> None:
        """Ends it with an error, which Python and torch's C++ code both get (torch's own function tells only Python)."""
        self._set_unwrap_func(_raise_failure)
        self.set_result(_Failure(error))

    def then(self, callback: Callable[[Future], Any]) -> Future:
        entered = Context(f"{self._path}.{next(self._callbacks)}")
        child = _Future(self._operation, entered.path)

        def run(_: Future) -> None:
            with _within(entered):
                try:
                    result = callback(self)
                except Exception as error:
                    child.set_exception(error)
                else:
                    child._mark = _mark()
                    child.set_result(result)

        super().add_done_callback(run)
        return child

    def add_done_callback(self, callback: Callable[[Future], None]) -> None:
        entered = Context(f"{self._path}.{next(self._callbacks)}")

        def run(_: Future) -> None:
            with _within(entered):
                callback(self)

        super().add_done_callback(run)


class LaterWork(Work):
    """LaterWork is an operation in flight."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self._operation = operation
        self._future: Optional[Future] = None

    def __del__(self) -> None:
        if not self._operation.is_over and not sys.is_finalizing():
            with contextlib.suppress(Exception):
                self._operation.serve()

    def wait(self, timeout: Any = None) -> bool:
        """Raises RuntimeError when it does not end within `timeout`. It goes on then, and can be waited for again."""
        operation = self._operation
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else 0.0  # 0: none, as torch has it
        if seconds <= 0:
            operation.complete()
        elif not operation.is_over and not operation.wait_for(seconds):
            raise RuntimeError(f"the operation has not ended within {seconds:g} s; a rank has not come to it, or is slow")
        else:
            operation.complete()  # what it has given its stream comes before what this thread gives its own
        if operation.error is not None:
            raise operation.error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if self._operation.would_wait():
            return False
        self._operation.complete()
        return True

    def is_success(self) -> bool:
        return self._operation.is_over and self._operation.error is None

    def exception(self) -> Optional[BaseException]:
        return self._operation.error

    def result(self) -> Any:
        self.wait()
        return self._operation.result

    def get_future(self) -> Future:
        if self._future is None:
            self._future = self._operation.future()
        return self._future


class _Server:
    """_Server is the threads that complete operations as they end: as many as scripts keep busy there, and one more."""

    def __init__(self) -> None:
        self._queue = _lib.DoneQueue()
        self._lock = threading.Lock()  # guards what follows
        self._operations: Dict[int, Operation] = {}  # by the library's handle of the first
        self._ready: Deque[Operation] = collections.deque()  # those without such a handle; each has a 0 in the queue
        self._threads: List[threading.Thread] = []
        self._idle = 0
        atexit.register(self._end)

    def put(self, operation: Operation) -> None:
        handle = library_handle(operation.handles[0]) if operation.handles else None
        with self._lock:
            if handle is not None:
                self._operations[handle] = operation
            else:
                self._ready.append(operation)
            if self._idle == 0:
                self._start()
        try:
            self._queue.put(handle or 0)
        except Exception:  # the job was left meanwhile, or another waits for it: then it ends at once, or in the wait for it
            with self._lock:
                if self._operations.pop(handle, None) is not None:
                    self._ready.append(operation)
            self._queue.put(0)

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name="hvd-futures", daemon=True)
        self._idle += 1
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            handle = self._queue.next(_LINGER_S)
            with self._lock:
                operation = self._operations.pop(handle, None)
                if operation is None and handle == 0 and self._ready:
                    operation = self._ready.popleft()
                if operation is None:
                    has_more = bool(self._operations or self._ready)
                    if not handle and (not has_more or self._idle > 1):
                        self._idle -= 1
                        self._threads.remove(threading.current_thread())
                        return
                    continue
                self._idle -= 1
                if self._idle == 0 and (self._operations or self._ready):
                    self._start()
            operation.end()
            del operation  # and the tensors with it
            with self._lock:
                self._idle += 1

    def _end(self) -> None:
        """Ends the server's threads before Python finalises: a thread that then comes back from torch ends the process
        by std::terminate. Setting a future takes Python's lock where nothing may be thrown, and Python ends every
        thread that asks for the lock by then."""
        with self._lock:
            threads = list(self._threads)
        for _ in threads:
            self._queue.put(0)
        until = time.monotonic() + 1.0
        for thread in threads:
            thread.join(max(until - time.monotonic(), 0.0))
        with self._lock:
            threads = list(self._threads)
        if threads:
            basics.shutdown()  # they wait for ranks that may never come; now their operations fail
            for thread in threads:
                thread.join(10.0)


_the_server: Optional[_Server] = None
_server_lock = threading.Lock()


def _server() -> _Server:
    global _the_server
    with _server_lock:
        if _the_server is None:
            _the_server = _Server()
        return _the_server


def _forget_server() -> None:
    """Forgets the server in a forked child: its threads stay in the parent, and one of them may hold a lock."""
    global _the_server, _server_lock
    if _the_server is not None:
        atexit.unregister(_the_server._end)
    _the_server, _server_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_server)


def later_in_place(tensors: Sequence[torch.Tensor], start: Callable[[torch.Tensor], int]) -> Operation:
    """Runs operations that leave their results in the tensors; `start` returns a handle."""
    memory = [tensor.detach().resolve_conj().resolve_neg().contiguous() for tensor in tensors]  # itself, where it is so

    def finish(_: List[Any]) -> List[torch.Tensor]:
        for tensor, result in zip(tensors, memory):
            if result.data_ptr() != tensor.data_ptr() or tensor.is_neg() or tensor.is_conj():
                tensor.detach().copy_(result)
        return list(tensors)

    return Operation([start(t) for t in memory], finish)


def later_into(output: torch.Tensor, dtype: torch.dtype, handle: int) -> Operation:
    """Runs an operation whose result, of values of this type, is copied into `output`, whatever its shape."""

    def finish(results: List[Any]) -> List[torch.Tensor]:
        output.detach().copy_(as_was(results[0], dtype).view(output.shape))
        return [output]

    return Operation([handle], finish)
