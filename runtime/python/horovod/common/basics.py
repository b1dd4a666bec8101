"""Joining and leaving the job, this process's place in it, and what the library can do."""

import atexit
import ctypes
import os
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from horovod.common import _failure, _lib, _wait
from horovod.common._variables import seconds_from
from horovod.common.exceptions import HorovodInternalError

# Horovod has the operators here too.
Average, Sum, Adasum, Min, Max, Product = _lib.AVERAGE, _lib.SUM, _lib.ADASUM, _lib.MIN, _lib.MAX, _lib.PRODUCT

# Counts the jobs that this process has left, so that a handle of an earlier one is not taken for a handle of this one.
generation = 0

# These are called when this process has left the job, because what they know of the job is no longer true.
when_left: List[Callable[[], None]] = []
# These make the process sets that init() was given, at the first call for a job or at a later one. process_sets.py, which needs
# this file, puts its function here.
with_initial_sets: List[Callable[[Any, bool], None]] = []

_exit_registered = False
_is_homogeneous = True
# What follows the joining of the job is done too. Ctrl-C may have come in between, and the library has joined all the same.
_is_complete = False


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Joins the job that `hvdrun` started, or whose ranks `mpirun` or `srun` did. A process that was started alone
    becomes a job of size 1.

    Blocks until every rank has joined. Calling it again without `shutdown` does nothing, but for process sets that are new.
    Leaving the job at exit is arranged.

    Args:
        comm: a job of some of the ranks that mpirun started: an mpi4py communicator, or a list of ranks of the world; the
            others do not call, or call with theirs. None or empty: all ranks.
        process_sets: a list of hvd.ProcessSet or of lists of ranks, the same on every rank, for `add_process_set`. Or
            "dynamic", as in Horovod, where it allows sets to be added later; here they always can be.

    Raises:
        ValueError: an argument is wrong or asks for what is not supported yet.
        HorovodInternalError: the job could not be joined (a rank did not come in time, is unreachable, ...); the text
            says which. The other ranks get the same for the same cause.
    """
    ranks, mpi_comm = _part_of_world(comm)
    if isinstance(process_sets, str) and process_sets.lower() == "dynamic":
        process_sets = None
    if process_sets is not None:
        if isinstance(process_sets, str) or not isinstance(process_sets, Iterable):
            raise ValueError('hvd.init(process_sets=...) takes a list of process sets, or "dynamic"')
        process_sets = list(process_sets)  # Horovod takes any iterable, such as the values of a dict
    with _joining:
        if not (is_initialized() and _is_complete):
            _begin(ranks, mpi_comm, process_sets)
        elif process_sets and restart_limit() == 0:
            for add in with_initial_sets:
                add(process_sets, True)


def _begin(ranks: List[int], mpi_comm: Optional[int], process_sets: Any) -> None:
    global _exit_registered
    _refuse_child()
    if not _exit_registered:
        _exit_registered = True
        owner = os.getpid()
        # A forked child that exits must not touch the runtime, whose thread is the parent's.
        atexit.register(lambda: _leave_at_exit() if os.getpid() == owner else None)
    _failure.watch()
    if restart_limit() == 0:
        _join(ranks, mpi_comm, 0.0, process_sets)
        return
    # While some ranks of an elastic job connect, another may fail. Then they connect again when its replacement is
    # there.
    until = time.monotonic() + _seconds_to_meet()
    while True:
        try:
            _join(ranks, mpi_comm, max(until - time.monotonic(), 1.0), process_sets)
            return
        except HorovodInternalError as error:
            # A process that was started again, or on a host that has come, waits for as long as the others train without
            # a commit. When they end, hvdrun ends it.
            is_newcomer = generation == 0 and came_late()
            if is_newcomer and error.status == _lib.TIMEOUT:
                until = time.monotonic() + _seconds_to_meet()
            elif error.status not in (_lib.LOST_PEER, _lib.UNREACHABLE) or time.monotonic() > until:
                raise
        time.sleep(0.05)


def _seconds_to_meet() -> float:
    """Returns how long the ranks of an elastic job may take to join it. For the first time they also import and load what they
    need, so they have no less than those of other jobs, however soon they are to meet again."""
    again_s = seconds_from("HOROVOD_ELASTIC_TIMEOUT", 600)
    if generation > 0:
        return again_s
    try:
        return max(again_s, seconds_from("HOROVOD_START_TIMEOUT", 60))
    except ValueError:
        return again_s  # libhvd refuses it when the job is joined, and names the numbers that it takes


def _leave_at_exit() -> None:
    _failure.tell_last()  # before the others hear that this rank has left
    shutdown()


# Held while the job is left, also by the thread that does so after Ctrl-C.
_leaving = threading.RLock()
# Held while the job is joined.
_joining = threading.RLock()


def _new_locks() -> None:
    """In a forked child, whose parent may have been joining or leaving on another thread."""
    global _leaving, _joining
    _leaving, _joining = threading.RLock(), threading.RLock()


os.register_at_fork(after_in_child=_new_locks)

# The variable that a rank which has joined sets for its child processes. It names the process, its job and its rank.
_JOINED = "HVD_JOINED"


def _own_mark() -> str:
    """Returns an empty text for a process that hvdrun has not started as a rank."""
    job, rank = os.environ.get("HVD_JOB_ID", ""), os.environ.get("HVD_RANK", "")
    return f"{os.getpid()} {rank} {job}" if job and rank else ""


def _refuse_child() -> None:
    """Raises HorovodInternalError in a program that a rank has started: it has the rank's environment, and would wait
    for a place that is taken."""
    joined, own = os.environ.get(_JOINED, "").split(" ", 2), _own_mark().split(" ", 2)
    if len(joined) == 3 and joined[1:] == own[1:] and joined[0] != own[0]:
        raise HorovodInternalError(
            f"rank {joined[1]} has joined already, in process {joined[0]}, which has started this one with its environment; "
            "a program that is to be a job of its own is started without the variables that begin with HVD_"
        )


def restart_limit() -> int:
    """Returns how many times hvdrun restarts failing ranks, of all ranks together; 0 when the job is not elastic."""
    return int(os.environ.get("HVD_RESTART_LIMIT") or 0)


def came_late() -> bool:
    """Returns True in a process that came to an elastic job while others trained: one that was started again, or on a host
    that has joined."""
    return bool(os.environ.get("HVD_JOINING")) or int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0) > 0


def _join(ranks: List[int], mpi_comm: Optional[int], timeout_s: float, process_sets: Any) -> None:
    """Joins the job. `timeout_s`: 0 for the usual one."""
    global _is_complete
    _is_complete = False
    with _leaving:
        pass  # what another thread still forgets of the last job must not be of this one

    def join() -> None:
        status = _lib.join(ranks, mpi_comm, timeout_s)
        if status:
            raise _lib.error_of(status) if ranks or mpi_comm is not None else HorovodInternalError(_lib.last_error(), status)

    _wait.call_interruptibly(join)
    if size() > int(os.environ.get("HVD_SIZE") or 0):
        _failure.unwatch()
    _wait.start(shutdown)
    if _own_mark():
        os.environ[_JOINED] = _own_mark()
    try:
        _compare_nodes()
        for add in with_initial_sets if process_sets or restart_limit() else ():
            add(process_sets or [], False)
    except BaseException:
        shutdown()
        raise
    _is_complete = True


def _part_of_world(comm: Any) -> Tuple[List[int], Optional[int]]:
    """Returns what init's comm says: ranks, or a communicator as Fortran numbers it."""
    if comm is None:
        return [], None
    if hasattr(comm, "py2f"):
        return [], comm.py2f()
    if isinstance(comm, (list, tuple, range)) and all(isinstance(r, int) and not isinstance(r, bool) for r in comm):
        return list(comm), None
    raise ValueError(f"hvd.init(comm=...) takes a list of ranks or an mpi4py communicator, not {type(comm).__name__}")


def _compare_nodes() -> None:
    """Finds out whether all nodes have as many ranks."""
    global _is_homogeneous
    _is_homogeneous = True
    if local_size() == size():
        return
    own, lowest, highest = ctypes.c_int32(local_size()), ctypes.c_int32(), ctypes.c_int32()
    for reduce_op, result in ((_lib.MIN, lowest), (_lib.MAX, highest)):
        plan = _lib.Plan(_lib.ALLREDUCE, _lib.INT32, (), "init.local_size", reduce_op)
        status = _wait.call(plan.execute, ctypes.addressof(own), ctypes.addressof(result))
        if status:
            raise HorovodInternalError(_lib.last_error(), status)
    _is_homogeneous = lowest.value == highest.value


def shutdown() -> None:
    """Leaves the job; `init` may be called again. Not an error when not initialised.

    Operations that are pending here, and those of other ranks that need this rank, fail with HorovodInternalError.
    """
    global generation, _timeline_path
    with _leaving:
        if is_initialized():
            _failure.note_leaving()
        try:
            _lib.lib.hvd_shutdown()
        finally:  # Ctrl-C during the call comes as an exception after it
            # From here on nothing works on the memory of pending operations, and who waits for one on another thread may free it.
            generation += 1
            _timeline_path = None
            if os.environ.get(_JOINED) == _own_mark():
                os.environ.pop(_JOINED, None)
            for forget in when_left:
                forget()


def is_initialized() -> bool:
    """Returns whether this process has joined a job and not left it."""
    return bool(_lib.lib.hvd_is_initialized())


def _number(value: int) -> int:
    if value < 0:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return value


def rank() -> int:
    """Returns this process's number in the job, 0 ... size() - 1. ValueError before init."""
    return _number(_lib.lib.hvd_rank(None))


def size() -> int:
    """Returns how many processes the job has. ValueError before init."""
    return _number(_lib.lib.hvd_size(None))


def local_rank() -> int:
    """Returns this process's number among those on its node; choose the GPU by it. ValueError before init."""
    return _number(_lib.lib.hvd_local_rank(None))


def local_size() -> int:
    """Returns how many processes of the job are on this node. ValueError before init."""
    return _number(_lib.lib.hvd_local_size(None))


def cross_rank() -> int:
    """Returns this node's number among the nodes that have this local rank. ValueError before init."""
    return _number(_lib.lib.hvd_cross_rank(None))


def cross_size() -> int:
    """Returns how many nodes have this local rank. ValueError before init."""
    return _number(_lib.lib.hvd_cross_size(None))


def is_homogeneous() -> bool:
    """Returns whether every node has as many ranks. ValueError before init."""
    size()
    return _is_homogeneous


def _get_process_set_ids_and_ranks() -> Dict[int, List[int]]:
    """This is Horovod's private name for process_sets.get_process_set_ids_and_ranks(), which some of its users call."""
    return _lib.process_sets()


# The file that start_timeline began last in this job, on any rank.
_timeline_path: Optional[str] = None


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts to write a timeline of the operations, for chrome://tracing or Perfetto, on rank 0.

    As in Horovod, one that is being written (HOROVOD_TIMELINE's, say) ends when another file is given, and goes on
    when it is the same.

    Raises:
        ValueError: the job was not joined, or the file cannot be written.
    """
    global _timeline_path
    size()
    path = os.path.abspath(os.fspath(file_path))
    if not _lib.start_timeline(path, mark_cycles):
        if path == os.path.abspath(_timeline_path or os.environ.get("HOROVOD_TIMELINE", "")):
            return
        _lib.stop_timeline()
        _lib.start_timeline(path, mark_cycles)
    _timeline_path = path


def stop_timeline() -> None:
    """Ends the timeline and its file. ValueError when the job was not joined."""
    size()
    _lib.stop_timeline()


# Scripts ask these to choose their way. Horovod answers for the libraries that it was compiled with; here they are
# loaded when needed. libhvd's own links take the place of Gloo.


def gloo_built(verbose: bool = False) -> bool:
    """Returns True: jobs run without MPI. (The collectives are libhvd's own, in the place where Horovod has Gloo.)"""
    return True


def gloo_enabled() -> bool:
    """Returns whether this job runs without MPI, also before it is joined."""
    return not mpi_enabled()


def _can_use(feature: int, verbose: bool) -> int:
    value = _lib.feature(feature)
    if verbose and not value:
        print(_lib.last_error(), file=sys.stderr)
    return value


def mpi_built(verbose: bool = False) -> bool:
    """Returns whether an MPI can be loaded on this machine. With `verbose`, says why not."""
    return bool(_can_use(_lib.HAS_MPI, verbose))


def mpi_enabled() -> bool:
    """Returns whether the ranks of this job have met by MPI, or move their data by it (HOROVOD_CPU_OPERATIONS=mpi)."""
    return bool(_lib.feature(_lib.USES_MPI))


def mpi_threads_supported() -> bool:
    """Returns whether MPI was started with MPI_THREAD_MULTIPLE, so that mpi4py can be used beside. Not before init.

    Scripts assert it, and an assertion says nothing: rank 0 tells how it would be true."""
    supported = bool(_lib.feature(_lib.MPI_THREADS))
    if not supported and is_initialized() and size() > 1 and rank() == 0 and not mpi_enabled():
        print("hvd.mpi_threads_supported() is False, because these ranks were started without MPI. To use mpi4py in them, start "
              "them with it: hvdrun --launcher mpi, horovodrun --mpi, or mpirun", file=sys.stderr)  # fmt: skip
    return supported


def nccl_built(verbose: bool = False) -> int:
    """Returns the version of the NCCL that can be loaded on this machine (22703 is 2.27.3), or 0. With `verbose`, says
    why not."""
    return _can_use(_lib.HAS_NCCL, verbose)


def ddl_built(verbose: bool = False) -> bool:
    """Returns False."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """Returns False."""
    return False


def cuda_built(verbose: bool = False) -> bool:
    """Returns whether operations are done on GPUs' memory where it is. With `verbose`, says why not: CUDA tensors are
    then copied through host memory."""
    return bool(_can_use(_lib.HAS_CUDA, verbose))


def rocm_built(verbose: bool = False) -> bool:
    """Returns False."""
    return False


def sycl_built(verbose: bool = False) -> bool:
    """Returns False: there is no support for SYCL devices."""
    return False
