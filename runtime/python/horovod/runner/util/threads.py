"""Threads for scripts and tests."""

import threading
from typing import Any, Callable, Optional, Tuple


def _check_arguments(args: Any) -> None:
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args).__name__}; for a single argument use (arg,)")


def in_thread(
    target: Callable[..., Any],
    args: Tuple = (),
    name: Optional[str] = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Starts a function in a thread of its own, and returns the thread. `silent`: nothing is printed of its
    exceptions."""
    _check_arguments(args)

    def body() -> None:
        try:
            target(*args)
        except Exception:
            if not silent:
                raise

    thread = threading.Thread(target=body, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: Tuple = (),
    stop: Optional[threading.Event] = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls a function in a thread once `event` is set, unless `stop` is set first."""
    if event is None:
        raise ValueError("event must not be None")
    _check_arguments(args)
    if stop is None and not daemon:
        raise ValueError("daemon=False needs a stop event: Python's end would wait for a thread that waits for ever")

    def wait_and_call() -> None:
        while not event.wait(check_stop_interval_s if stop is not None else None):
            if stop is not None and stop.is_set():
                return
        func(*args)

    return in_thread(wait_and_call, daemon=daemon, silent=silent)
