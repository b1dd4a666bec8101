"""Waits for operations in a way that Ctrl-C can end.

Python runs signal handlers on the main thread between bytecodes, so a main thread that is blocked inside libhvd would
not see Ctrl-C before the operation ends, which may be long when another rank is stuck. Polling, or waiting on a helper
thread, would cost every operation; instead a signal wakes a sleeping watcher thread through Python's wake-up
descriptor. If SIGINT has Python's default meaning and the wait has not ended a moment later, the watcher leaves the
job: the wait then returns (cancelled) and KeyboardInterrupt rises from it. The runtime is cleanly shut after that; the
other ranks get HorovodInternalError, and hvd.init() may be called again. A SIGINT handler of the user's own is not
second-guessed: it runs when the operation ends.

Setting the wake-up descriptor takes two system calls, so it stays set between waits, and is set again now and then in
case someone took it away. Where someone else (asyncio) has set his, ours is there during waits only.
"""

import contextlib
import os
import signal
import threading
import time
from typing import Any, Callable, List, Optional

from horovod.common import _lib

# How long an operation may take to end by itself after Ctrl-C, in seconds. Most end within milliseconds, and then
# nothing is lost.
_GRACE_S = 0.3

# The time in seconds for which the wake-up descriptor is assumed to be still ours. If someone takes it, a wait that
# begins within this time does not notice Ctrl-C. Setting the descriptor takes half a microsecond, so a program that
# only waits loses one part in two thousand.
_TRUST_S = 0.001

_monotonic = time.monotonic
_get_ident = threading.get_ident


class _Watcher:
    def __init__(self, leave_job: Callable[[], None]) -> None:
        self._leave_job = leave_job
        self._read_end, self._write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._write_end, False)  # signal handlers must not block; demanded by set_wakeup_fd
        self.number = 0  # counts waits, so that a late reaction does not hit the next one
        self.is_waiting = False
        self.trusted_until = 0.0
        self._other_fd = -1  # the wake-up descriptor of someone else (asyncio), who gets its bytes too
        threading.Thread(target=self._run, name="hvd-ctrl-c", daemon=True).start()

    def arm(self) -> None:
        """Call it before a wait, on the main thread."""
        other = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        self._other_fd = -1 if other == self._write_end else other
        self.trusted_until = _monotonic() + _TRUST_S if self._other_fd < 0 else 0.0

    def disarm(self) -> None:
        """Call it after a wait: gives the descriptor back to its owner."""
        if self._other_fd >= 0:
            signal.set_wakeup_fd(self._other_fd, warn_on_full_buffer=False)
            self._other_fd = -1

    def _run(self) -> None:
        while True:
            signals = os.read(self._read_end, 256)
            number = self.number
            other = self._other_fd
            if other >= 0:
                try:
                    os.write(other, signals)
                except OSError:
                    pass  # full or closed: its owner has a wake-up pending or wants none
            if (
                signal.SIGINT in signals
                and self.is_waiting
                and signal.getsignal(signal.SIGINT) is signal.default_int_handler
            ):
                time.sleep(_GRACE_S)
                if self.is_waiting and self.number == number:
                    self._leave_job()


_watcher: Optional[_Watcher] = None
_main_thread = 0  # 0 while there is no watcher: then no thread is taken for the main one


def start(leave_job: Callable[[], None]) -> None:
    """Makes waits of the main thread interruptible. Called once the job is joined."""
    global _watcher, _main_thread
    if _watcher is None:
        _watcher = _Watcher(leave_job)
        _main_thread = threading.main_thread().ident or 0


def _forget_watcher() -> None:
    """Forgets the watcher in a forked child: the thread stays in the parent, and the child's signals are not the
    parent's."""
    global _watcher, _main_thread
    if _watcher is not None:
        _watcher, _main_thread = None, 0
        with contextlib.suppress(ValueError):  # forked by another thread than the main one
            signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_forget_watcher)


# Collections of operations that are to be started together. All are started before any thread waits for something else,
# because another rank may need them before it does its part. This holds for every thread: torch runs the hooks and
# waits of a backward pass on a GPU in a thread of its own.
collections: List[Any] = []  # each has start_now(), which removes it from this list


def start_collected() -> None:
    """Starts what is collected, and never fails: those who wait for the operations get the error."""
    for collection in list(collections):
        collection.start_now()


def call(function: Callable[..., int], *arguments) -> int:
    """Returns what a library call that waits returns. On the main thread it can be interrupted."""
    if collections:
        start_collected()
    if _get_ident() != _main_thread:
        return function(*arguments)
    watcher = _watcher
    if _monotonic() > watcher.trusted_until:
        watcher.arm()
    watcher.number += 1
    watcher.is_waiting = True
    try:
        return function(*arguments)
    finally:
        watcher.is_waiting = False
        if not watcher.trusted_until:
            watcher.disarm()


def wait(handle: int) -> int:
    """Blocks until the operation has ended; returns its status."""
    return call(_lib.lib.hvd_wait, None, handle)


def finish(handles: _lib.HandleArray) -> None:
    """Works as HandleArray.finish, interruptibly."""
    _lib.check(call(handles.finish))


def call_interruptibly(function: Callable[[], None]) -> None:
    """Runs a rare and long call (joining the job) on a thread of its own, so that Ctrl-C ends the wait for it.

    After Ctrl-C the call itself goes on in the background until its own limit.
    """
    failure: list = []

    def body() -> None:
        try:
            function()
        except BaseException as error:  # handed to the caller below
            failure.append(error)

    thread = threading.Thread(target=body, name="hvd-join", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
