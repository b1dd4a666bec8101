"""Tells hvdrun at once of an exception that ends this rank.

The process lives on for a while after it: threads that are not daemons, `atexit` functions and the interpreter's own end
come first. By then other ranks may have failed because of this one, and ended sooner.
"""

import os
import re
import sys
import sysconfig
import threading
import traceback
from types import FrameType
from typing import Any, Iterator, Optional, Set

from horovod.common import _lib
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

# Python's exit codes after an uncaught exception.
_EXIT_CODE = 1
_EXIT_CODE_INTERRUPTED = 130

# The folders of this package, of the packages beside it, and of Python's own modules.
_LIBRARIES = tuple(
    os.path.join(folder, "")
    for folder in (os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *map(sysconfig.get_path, ("purelib", "stdlib")))
)

# The names of the outermost frame of a program that still runs. A hook that the interpreter calls has none of them
# below.
_PROGRAM_FRAMES = ("<module>", "_run_module_as_main", "_bootstrap")

# libhvd's status in the text of an error that has gone through compiled code, and what follows it.
_STATUS = re.compile(r"\[hvd (\d+)\] ?(.*)", re.S)

# The packages whose compiled code fails with errors of its own.
_COMPILED = ("jax", "jaxlib", "tensorflow", "torch")

_owner: Optional[int] = None  # the process that is watched; its forks are not the rank
_told: Optional[BaseException] = None
_has_committed = False


def watch() -> None:
    """Reports, from now on, exceptions that nobody catches. A second call does nothing."""
    global _owner
    if _owner == os.getpid() or not os.environ.get("HVD_AGENT_SOCKET"):
        return
    _owner = os.getpid()
    uncaught, uncaught_in_thread = sys.excepthook, threading.excepthook

    def on_uncaught(kind: Any, error: Any, trace: Any) -> None:
        if not _is_called_by_program():
            tell(error, trace)
        uncaught(kind, error, trace)

    def on_uncaught_in_thread(args: Any) -> None:
        # The failure is only noticed: the program goes on without the thread, unless its own hook ends it.
        if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
            _tell(_lib.FAILURE_NOTICED, args.exc_value, args.exc_traceback)
        uncaught_in_thread(args)

    sys.excepthook = on_uncaught
    threading.excepthook = on_uncaught_in_thread


def note_commit() -> None:
    """The state of an elastic job was saved: an error that comes later need not come again."""
    global _has_committed
    _has_committed = True


def unwatch() -> None:
    """Stops reporting: this process is not the rank that hvdrun started, but one of several that such a rank has
    started."""
    global _owner
    _owner = None


def tell(error: BaseException, trace: Any) -> None:
    """Reports an exception that ends the program."""
    global _told
    _told = error
    _tell(_lib.FAILURE_FOLLOWS if follows(error) else _lib.FAILURE_ENDS, error, trace)


def tell_last() -> None:
    """Reports, while Python ends, what nobody caught, for a program with a hook of its own that does not call ours."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, BaseException) and error is not _told:
        # It is not certain that this ended the program: interactive shells and test runners set it too.
        _tell(_lib.FAILURE_FOLLOWS if follows(error) else _lib.FAILURE_NOTICED, error, error.__traceback__)


def note_leaving() -> None:
    """The rank is about to leave its job. If it does so because of an exception, as a `finally` does, that is reported:
    others then fail because of it, and what this rank has still to do may take long."""
    error = sys.exc_info()[1]
    is_own = isinstance(error, (Exception, KeyboardInterrupt)) and not isinstance(error, HostsUpdatedInterrupt)
    if is_own and not is_of_job(error):
        _tell(_lib.FAILURE_NOTICED, error, error.__traceback__)


def _tell(kind: int, error: BaseException, trace: Any) -> None:
    if os.getpid() != _owner:
        return
    try:
        interrupted = isinstance(error, KeyboardInterrupt)
        code = _EXIT_CODE_INTERRUPTED if interrupted else _EXIT_CODE
        _lib.tell_failure(kind, code, _has_committed, _line_of(error, trace))
    except Exception:
        pass  # what the program prints of its own failure matters more


def _line_of(error: BaseException, trace: Any) -> str:
    """Returns 'ValueError: no such file, train.py:12 in load', in the form that hvdrun makes of a traceback."""
    lines = traceback.format_exception_only(type(error), error)
    first = next((line for line in lines if not line.startswith(" ")), type(error).__name__)
    line = first.strip().split("\n")[0][:500]
    deepest = program = None
    while trace is not None:
        code = trace.tb_frame.f_code
        deepest = f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"
        if not code.co_filename.startswith(_LIBRARIES) and not code.co_filename.startswith("<frozen "):
            program = deepest
        trace = trace.tb_next
    # What a collective fails with is raised within libraries: the line of the program that called them says more.
    place = program if program is not None and isinstance(error, HorovodInternalError) else deepest
    return line if place is None else f"{line}, {place}"


def job_error(error: BaseException, handled: Optional[BaseException] = None) -> Optional[HorovodInternalError]:
    """Returns the failure of a collective that caused it: it was raised as such, or from one, or while one was handled.

    `handled`: an exception that was being handled before, and so has caused nothing."""
    return next(_job_errors(error, handled), None)


def is_of_job(error: BaseException) -> bool:
    """Returns whether a collective's failure caused it."""
    return job_error(error) is not None


def follows(error: BaseException) -> bool:
    """Returns whether another rank's end caused it."""
    return any(each.status in (_lib.LOST_PEER, _lib.UNREACHABLE) for each in _job_errors(error))


def marked(error: BaseException) -> BaseException:
    """Returns an error for compiled code, which passes only its text on: `job_error` then finds in it what it was."""
    is_ours = isinstance(error, HorovodInternalError)
    return HorovodInternalError(f"[hvd {error.status}] {error}", error.status) if is_ours else error


def _job_errors(error: BaseException, handled: Optional[BaseException] = None) -> Iterator[HorovodInternalError]:
    for each in _chain(error):
        if each is handled:
            return
        found = _meant_by(each)
        if found is not None:
            yield found


def _chain(error: Optional[BaseException]) -> Iterator[BaseException]:
    """Yields it, and what it was raised from, or while what was handled, and so on."""
    seen: Set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _meant_by(error: BaseException) -> Optional[HorovodInternalError]:
    """Returns the failure of a collective that this error is. Compiled code fails with an exception of its framework, or
    with a RuntimeError, whose text says what it is."""
    if isinstance(error, HorovodInternalError):
        return error
    package = type(error).__module__.partition(".")[0]
    if (package in _COMPILED or type(error) is RuntimeError) and (found := _STATUS.search(str(error))):
        return HorovodInternalError(found[2], int(found[1]))
    if package == "tensorflow" and "Horovod" in str(error):
        status = {"UnknownError": _lib.LOST_PEER, "FailedPreconditionError": 0}.get(type(error).__name__)
        return None if status is None else HorovodInternalError(str(error), status)
    return None


def _is_called_by_program() -> bool:
    """Returns True where a program calls sys.excepthook itself, to print an exception that it has caught, and goes
    on."""
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name in _PROGRAM_FRAMES
