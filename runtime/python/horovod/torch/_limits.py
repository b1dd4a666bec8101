"""The timeouts of torch.distributed's groups. An operation that waits longer ends, since this rank then leaves the job.

That is what ends a wait for a rank that never comes, as Ctrl-C does: the operation's memory is the script's again, and the other
ranks are told. A thread looks when the next operation's time is over; to begin and end an operation wakes nobody up.
"""

import itertools
import os
import threading
import time
from typing import Callable, Dict, Optional

from horovod.common import basics
from horovod.common.exceptions import HorovodInternalError

_monotonic = time.monotonic


class Entry:
    """Entry is one operation's limit."""

    __slots__ = ("until", "what", "seconds", "would_wait", "number", "has_passed")

    def __init__(self, what: str, seconds: float, would_wait: Optional[Callable[[], bool]]) -> None:
        self.until = _monotonic() + seconds
        self.what = what
        self.seconds = seconds
        self.would_wait = would_wait  # None: until it is ended
        self.number = next(_numbers)
        self.has_passed = False

    def end(self, error: Optional[BaseException]) -> Optional[BaseException]:
        """Notes that the operation ended with this error, and returns the error to raise."""
        _entries.pop(self.number, None)
        if error is None or not self.has_passed:
            return error
        return HorovodInternalError(
            f"{self.what} has not ended within its timeout of {self.seconds:g} s: a rank has not come to it, or is slow. This "
            "rank has left the job; timeout= of init_process_group or new_group sets the limit"
        )


_numbers = itertools.count(1)
_entries: Dict[int, Entry] = {}
_changed = threading.Condition()
_shortest = float("inf")  # the shortest timeout that was asked for
_watch: Optional[threading.Thread] = None


def begin(what: str, seconds: float, would_wait: Optional[Callable[[], bool]] = None) -> Entry:
    """From now on the operation has so many seconds, until `end`, or while `would_wait` says that it has not ended."""
    entry = Entry(what, seconds, would_wait)
    _entries[entry.number] = entry
    if seconds < _shortest or _watch is None:
        _look_within(seconds)
    return entry


def _look_within(seconds: float) -> None:
    global _shortest, _watch
    with _changed:
        _shortest = min(_shortest, seconds)
        if _watch is None:
            _watch = threading.Thread(target=_run, name="hvd-limits", daemon=True)
            _watch.start()
        _changed.notify_all()


def _run() -> None:
    while True:
        now, shortest = _monotonic(), _shortest
        # An operation that begins while this sleeps ends later than the sleep.
        next_look = now + shortest
        for entry in list(_entries.values()):
            if entry.until > now:
                next_look = min(next_look, entry.until)
            elif entry.would_wait is not None and not entry.would_wait():
                _entries.pop(entry.number, None)  # it has ended, and nobody has asked yet
            elif _entries.pop(entry.number, None) is not None:
                entry.has_passed = True
                basics.shutdown()
        with _changed:
            if _shortest == shortest:
                _changed.wait(min(max(next_look - _monotonic(), 0.0), threading.TIMEOUT_MAX))


def _forget() -> None:
    """Forgets all in a forked child, which does not have the thread."""
    global _changed, _watch, _shortest
    _entries.clear()
    _changed, _watch, _shortest = threading.Condition(), None, float("inf")


os.register_at_fork(after_in_child=_forget)
