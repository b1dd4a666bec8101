"""Waiting for an operation so that Ctrl-C works.

Python runs signal handlers on the main thread between bytecodes, so a main thread that is blocked inside libhvd would
not see Ctrl-C before the operation ends, which may be long when another rank is stuck. Polling, or waiting on a helper
thread, would cost every operation; instead a signal wakes a sleeping watcher thread through Python's wake-up
descriptor. If SIGINT has Python's default meaning and the wait has not ended a moment later, the watcher leaves the
job: the wait then returns (cancelled) and KeyboardInterrupt rises from it. The runtime is cleanly shut after that; the
other ranks get HorovodInternalError, and hvd.init() may be called again. A SIGINT handler of the user's own is not
second-guessed: it runs when the operation ends.
"""

import os
import signal
import threading
import time
from typing import Callable, Optional

from horovod.common import _lib

# How long an operation may take to end by itself after Ctrl-C, in seconds. Most end within milliseconds, and then
# nothing is lost.
_GRACE_S = 0.3


class _Watcher:
    def __init__(self, leave_job: Callable[[], None]) -> None:
        self._leave_job = leave_job
        self._read_end, self._write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._write_end, False)  # signal handlers must not block; demanded by set_wakeup_fd
        self._number = 0  # counts waits, so that a late reaction does not hit the next one
        self._waiting = False
        self._other_fd = -1  # the wake-up descriptor of someone else (asyncio), who gets its bytes too
        threading.Thread(target=self._run, name="hvd-ctrl-c", daemon=True).start()

    def wait(self, handle: int) -> int:
        """hvd_wait on the main thread."""
        other = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        try:
            self._other_fd = -1 if other == self._write_end else other
            self._number += 1
            self._waiting = True
            return _lib.lib.hvd_wait(None, handle)
        finally:
            self._waiting = False
            signal.set_wakeup_fd(self._other_fd, warn_on_full_buffer=False)

    def _run(self) -> None:
        while True:
            signals = os.read(self._read_end, 256)
            number = self._number
            other = self._other_fd
            if other >= 0:
                try:
                    os.write(other, signals)
                except OSError:
                    pass  # full or closed: its owner has a wake-up pending or wants none
            if signal.SIGINT in signals and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                time.sleep(_GRACE_S)
                if self._waiting and self._number == number:
                    self._leave_job()


_watcher: Optional[_Watcher] = None


def start(leave_job: Callable[[], None]) -> None:
    """Makes waits of the main thread interruptible; called once the job is joined."""
    global _watcher
    if _watcher is None:
        _watcher = _Watcher(leave_job)


def _forget_watcher() -> None:
    global _watcher
    _watcher = None


os.register_at_fork(after_in_child=_forget_watcher)  # its thread stays in the parent


def wait(handle: int) -> int:
    """Blocks until the operation has ended; returns its status."""
    if _watcher is None or threading.current_thread() is not threading.main_thread() or _lib.is_done(handle):
        return _lib.lib.hvd_wait(None, handle)
    return _watcher.wait(handle)


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
