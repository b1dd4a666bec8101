"""One job of horovod.run or horovodrun's arguments: starts hvdrun, passes on what it prints, and collects the results."""

import importlib.metadata
import io
import json
import os
import pathlib
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any, Callable, Dict, IO, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

import cloudpickle

from horovod.common import _failure
from horovod.runner import _options, _pickling
from horovod.runner._culprit import find_culprit
from horovod.runner._exchange import Folder, Lines
from horovod.runner.elastic import constants

# The time in seconds to read the rest of hvdrun's output after it has ended; a stray process may still hold its pipes.
_PUMP_S = 5.0

# hvdrun's exit code when it refuses its arguments, and what it says at the end of a job that has begun and failed.
_USAGE = 240
_NOT_STARTED = 242
_HAS_RUN = "hvdrun: job failed after "

# Programs recognise a failed job by this text.
_FAILED = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be terminated."
)

# The number of hvdrun's last lines that go into the text of an error.
_TOLD_LINES = 30


def find_program(name: str) -> str:
    """Returns the path of one of our programs: beside this Python, in PATH, or where pip has put it with this package.
    FileNotFoundError if it is nowhere."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which(name) or next((path for path in _installed(name) if os.access(path, os.X_OK)), None)
    if found is None:
        raise FileNotFoundError(
            f"{name} is neither beside {sys.executable}, nor in PATH, nor among the files of this package; install it with pip"
        )
    return found


def _installed(name: str) -> Iterator[str]:
    """Gives where pip may have put a program: a notebook's PATH lacks ~/.local/bin, and other Pythons may see this package."""
    try:
        files = importlib.metadata.files("hvdrun") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == name:
            yield os.path.normpath(file.locate())
    # pip install --target TARGET moves programs into TARGET/bin, and notes another place.
    yield str(pathlib.Path(__file__).parents[2] / "bin" / name)


class RemoteTraceback(Exception):
    """RemoteTraceback is the cause of an exception that came from a rank: its traceback there, and hvdrun's report of
    the job's end."""

    def __init__(self, rank: int, text: str, host: str = "", report: str = "") -> None:
        super().__init__(rank, text, host, report)
        self.rank = rank
        self.text = text
        self.host = host
        self.report = report

    def __str__(self) -> str:
        where = f"on rank {self.rank}" + (f" ({self.host})" if self.host else "")
        told = f"\nThe last lines of the job:\n{self.report}" if self.report else ""
        return f"{where}:\n{self.text}{told}"


def _is_all_here(hvdrun: str, words: List[str]) -> bool:
    """Returns whether all ranks will be on this machine, as hvdrun plans it. ValueError with its words when it
    refuses."""
    plan = subprocess.run(
        [hvdrun, "plan", "--json", *words, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if plan.returncode:
        raise ValueError(plan.stderr.decode(errors="replace").strip())
    return "--mpi" not in words and all(node["transport"] == "local" for node in json.loads(plan.stdout)["nodes"])


class _Pump(threading.Thread):
    """_Pump passes on the lines of one of hvdrun's streams to one of this process's, which may be a notebook's."""

    def __init__(self, source: IO[bytes], destination: Any, take: Callable[[bytes], bytes]) -> None:
        super().__init__(name="hvd-run-output", daemon=True)
        self._source = source
        self._destination = destination
        self._take = take
        self._has_told = False
        self.last: List[str] = []
        self.start()

    def run(self) -> None:
        for line in self._source:
            try:
                text = self._take(line).decode(errors="replace")
            except Exception as error:  # of print(), or of a line that a rank has torn; hvdrun waits for its reader
                self._tell_once(error)
                continue
            self.last = [*self.last[1 - _TOLD_LINES :], text]
            try:
                if text:
                    self._destination.write(text)
                    getattr(self._destination, "flush", lambda: None)()
            except (OSError, ValueError):
                pass  # closed: the job goes on, and its results are still wanted
            except Exception as error:  # of somebody's own write()
                self._tell_once(error)

    def _tell_once(self, error: Exception) -> None:
        if not self._has_told and sys.__stderr__ is not None:
            self._has_told = True
            print(f"horovod: what ranks print is lost: {type(error).__name__}: {error}", file=sys.__stderr__)


def check_stream(name: str, stream: Any) -> None:
    """TypeError where what ranks print cannot be written to it."""
    if stream is None or (hasattr(stream, "write") and not isinstance(stream, (io.RawIOBase, io.BufferedIOBase))):
        return
    raise TypeError(
        f"{name} must be a file opened for text, or another object with write(text), not {stream!r}; "
        f'write {name}=open(path, "w")'
    )


def _stop(process: subprocess.Popen) -> None:
    """Makes hvdrun stop its ranks, politely, then by force."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    process.wait()


def start(argv: List[str], environment: Dict[str, str], pass_fds: Tuple[int, ...] = ()) -> subprocess.Popen:
    """Starts hvdrun, whose output is for run_to_end()."""
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, pass_fds=pass_fds,
        start_new_session=True,  # Ctrl-C comes to it once, from here
    )  # fmt: skip


def _tied() -> List[str]:
    """The words that make hvdrun stop its ranks when this process is killed, which nobody then tells it. Whoever starts it with
    them waits for its end on the same thread: Linux tells the end of that thread, too."""
    return ["--end-with-parent", str(os.getpid())]


def run_to_end(
    process: subprocess.Popen,
    take: Callable[[bytes], bytes],
    stdout: Any = None,
    stderr: Any = None,
    while_it_runs: Callable[[], None] = lambda: None,
) -> Tuple[int, str]:
    """Returns hvdrun's exit code and the last lines of its standard error.

    What it prints goes to `stdout` and `stderr`: anything with write(text); default: this process's. `take` returns what
    of a line of standard output is for the user. `while_it_runs` is called once, when its output is being read; what it
    raises stops hvdrun.
    """
    pumps: List[_Pump] = []
    try:
        pumps.append(_Pump(process.stdout, sys.stdout if stdout is None else stdout, take))
        pumps.append(_Pump(process.stderr, sys.stderr if stderr is None else stderr, lambda line: line))
        while_it_runs()
        code = process.wait()
    except BaseException:
        _stop(process)
        for pump in pumps:  # a thread that writes to sys.stdout while Python ends aborts it
            pump.join(_PUMP_S)
        raise
    for pump in pumps:
        pump.join()
    process.stdout.close()
    process.stderr.close()
    return code, "".join(pumps[1].last)


def _without_traceback(report: str, rank: int, traceback_text: str) -> str:
    """Returns hvdrun's last lines without the traceback of this rank, which is told beside them. They may have it twice: as the
    rank printed it, and as hvdrun quotes what the rank printed last."""
    told = set(traceback_text.splitlines())
    quotation = r"^hvdrun: the last lines of its standard error:\n((?:hvdrun:   .*\n)+)"
    rank_line = rf"^[^\[\n]*\[{rank}\]<stderr>:(.*)\n"

    def left(found: "re.Match[str]") -> str:
        lines = [found[2]] if found[1] is None else [line[len("hvdrun:   ") :] for line in found[1].splitlines()]
        return "" if all(line in told or line.endswith("lines left out)") for line in lines) else found[0]

    return re.sub(f"{quotation}|{rank_line}", left, report, flags=re.MULTILINE)


def raise_first_failure(failures: List[Dict[str, Any]], last_words: str) -> None:
    """Raises what a rank's function raised: the first that is not a consequence of another rank's end."""
    first = min(failures, key=lambda failure: (failure["is_internal"], failure["time"]))
    remote = RemoteTraceback(
        first["rank"],
        first["traceback"],
        first["host"],
        _without_traceback(last_words, first["rank"], first["traceback"]),
    )
    try:
        error = pickle.loads(first["error"])
    except Exception:
        error = None
    if not isinstance(error, Exception):
        raise RuntimeError(f"rank {first['rank']} raised {first['text']}") from remote
    raise error from remote


def make_payload(func: Callable[..., Any], args: Optional[Iterable[Any]], kwargs: Optional[Mapping[str, Any]]) -> bytes:
    """Returns what the ranks are sent. TypeError names what cannot be called or pickled."""
    return pickle.dumps((sys.path, pickled_call(func, args, kwargs)))


def pickled_call(
    func: Callable[..., Any],
    args: Optional[Iterable[Any]],
    kwargs: Optional[Mapping[str, Any]],
    dumps: Callable[[Any], bytes] = _pickling.dumps,
) -> bytes:
    """Returns (func, args, kwargs), pickled. TypeError names what cannot be called or pickled."""
    if not callable(func):
        raise TypeError(f"a function is needed, not {func!r}; a script is started by hvdrun: hvdrun -np 2 python train.py")
    # Somebody who writes args=(0.1) or args="text" means one argument.
    if isinstance(args, (str, bytes)) or not isinstance(args, (Iterable, type(None))):
        raise TypeError(f"args must be a list or tuple of arguments, not {args!r}; write args=[{args!r}] for one argument")
    if not isinstance(kwargs, (Mapping, type(None))):
        raise TypeError(f"kwargs must be a dict of arguments by name, not {kwargs!r}")
    args, kwargs = () if args is None else tuple(args), dict(kwargs or {})
    try:
        return dumps((func, args, kwargs))
    except Exception as error:
        name = getattr(func, "__qualname__", repr(func))
        culprit = find_culprit(func, args, kwargs)
        raise TypeError(
            f"{name} cannot be sent to the ranks: {culprit + ': ' if culprit else ''}{error}. Make what it refers to inside "
            "of the function, or pass what can be pickled"
        ) from error


def _run_command(words: List[str], command: List[str]) -> None:
    """Runs a command as the ranks. RuntimeError, in words that programs know from Horovod, when the job fails."""
    code, last_words = run_to_end(start([find_program("hvdrun"), *words, *_tied(), *command], dict(os.environ)), lambda line: line)
    if code == 0:
        return
    over_limit = constants.RESET_LIMIT_EXCEEDED_MESSAGE.partition("{}")[0]
    what = next((over_limit + line.partition(over_limit)[2] for line in last_words.splitlines() if over_limit in line), None)
    raise RuntimeError(
        f"{what or _FAILED}\nhvdrun ended with exit code {code}; its last lines were:\n{last_words}"
    )


def run_arguments(arguments: Any, elastic: bool) -> Optional[List[Any]]:
    """Runs the job that horovodrun's arguments describe: their function, whose results are returned, or their command.

    An elastic job returns results of as many ranks as it needs, those of the first ranks that there were at its end.
    """
    words = _options.hvdrun_words(arguments, elastic)
    if arguments.run_func is None:
        return _run_command(words, list(arguments.command or []))
    if arguments.num_proc is None:
        raise ValueError("num_proc is needed for a function: the number of ranks that call it")
    payload = arguments.run_func if isinstance(arguments.run_func, bytes) else make_payload(arguments.run_func, (), {})
    if not arguments.verbose:
        words.append("--quiet")
    hvdrun = find_program("hvdrun")
    with tempfile.TemporaryDirectory(prefix="hvd-run-") as folder:  # mode 0700
        # Where the ranks of an elastic job will be is not known before.
        is_all_here = not elastic and _is_all_here(hvdrun, words)
        exchange: Union[Folder, Lines] = Folder(folder, payload) if is_all_here else Lines(payload)
        passed = [word for name in exchange.environment for word in ("-x", name)]
        python = [arguments.executable or sys.executable, "-m", "horovod.runner.run_task"]
        process = start([hvdrun, *words, *_tied(), *exchange.words, *passed, *python], {**os.environ, **exchange.environment})
        code, last_words = run_to_end(process, exchange.take)
        if _is_refused(code, last_words):
            raise ValueError(last_words.strip())
        if not elastic:
            replies = [exchange.result(rank) for rank in range(arguments.num_proc)]
            return results_of("horovod.run", replies, code, last_words)
    least = arguments.min_num_proc or arguments.num_proc
    return elastic_results_of("horovod.run", exchange.results(), least, code, last_words)[:least]


def _is_refused(code: int, last_words: str) -> bool:
    """Returns whether hvdrun refuses what it was asked for, or lacks the launcher that it was asked for."""
    if _HAS_RUN in last_words:
        return False  # it is a rank's own code
    return code == _USAGE or code == _NOT_STARTED and "could not be started: --launcher " in last_words


def elastic_results_of(who: str, replies: List[bytes], least: int, code: int, last_words: str) -> List[Any]:
    """As results_of() for an elastic job: of the ranks that were there at its end, in rank order, `least` of them or more."""
    if code:
        results_of(who, [*replies, None], code, last_words, has_all=False)  # raises
    # What failed on the way has been done without, or again.
    answers = sorted((pickle.loads(reply) for reply in replies), key=lambda answer: answer["rank"])
    # The last of a rank's number: one that left after its function had returned was replaced.
    results = list({answer["rank"]: answer["result"] for answer in answers if "result" in answer}.values())
    if len(results) < least:
        raise RuntimeError(f"{who}: {len(results)} of {least} ranks left a result\n{last_words}")
    return [pickle.loads(result) for result in results]


def results_of(
    who: str, replies: List[Optional[bytes]], code: int, last_words: str, has_all: bool = True
) -> List[Any]:
    """Returns what the ranks' functions returned. Otherwise raises what one raised first, or RuntimeError with hvdrun's
    report. `has_all`: there is an item for each rank, None where it has left nothing."""
    answers = [None if reply is None else pickle.loads(reply) for reply in replies]
    failures = [answer for answer in answers if answer is not None and "error" in answer]
    missing = [rank for rank, answer in enumerate(answers) if answer is None]
    # Where all of them follow another rank, and one has left nothing, as when it was killed, the report names the cause.
    if failures and not (has_all and code and missing and all(failure["follows"] for failure in failures)):
        raise_first_failure(failures, last_words)
    if code or missing:
        gone = f"ranks {missing} left no result: each ended with code 0 before its function returned, as os._exit(0) does"
        what = f"{_FAILED} hvdrun ended with exit code {code}" if code else gone
        raise RuntimeError(f"{who}: {what}\n{last_words}")
    # Results are unpickled last. A module that one needs may be missing here, and that is no failure of the job.
    return [pickle.loads(answer["result"]) for answer in answers]


def describe_failure(error: BaseException, rank: int, when: float, traceback_text: str) -> Dict[str, Any]:
    """Describes an exception that came out of the function, for the rank's reply."""
    try:
        pickled = cloudpickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = b""
    return {
        "error": pickled, "text": f"{type(error).__name__}: {error}", "traceback": traceback_text, "rank": rank,
        "host": os.uname().nodename, "time": when, "is_internal": _failure.is_of_job(error),
        "follows": _failure.follows(error),
    }  # fmt: skip
