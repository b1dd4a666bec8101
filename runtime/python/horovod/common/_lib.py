"""The binding to libhvd: the one file that knows its C interface (runtime/include/hvd/hvd.h).

The library is looked for in the package (`horovod/lib/libhvd.so`, where the wheel has it, or next to the package's
`__init__.py`), then at the path in the environment variable HVD_LIBRARY. ctypes releases the interpreter lock during
every call.
"""

import ctypes
import os
import pathlib
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from horovod.common.exceptions import HorovodInternalError, HorovodVersionMismatchError

ABI_VERSION = 8
MAX_DIMS = 16
MAX_GROUP = 4096

INVALID = 1
NOT_FOUND = 2
UNREACHABLE = 3
LOST_PEER = 7

ALLREDUCE, ALLGATHER, BROADCAST, BARRIER, REDUCESCATTER, ALLTOALL, JOIN = range(7)
AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)
UINT8, INT8, UINT16, INT16, INT32, INT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64, BOOL = range(11)

GOES_ON, WAITS_NEXT, WAITS_SOON = range(3)  # what who starts operations does then, for Batch.start()
HAS_MPI, USES_MPI, MPI_THREADS, HAS_CUDA, HAS_NCCL, NODE_CORES = 1, 2, 3, 4, 5, 6  # for feature()

_DEVICE_CPU = -1


class _Options(ctypes.Structure):
    """hvd_options."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("timeout_s", ctypes.c_double),
        ("ranks", ctypes.POINTER(ctypes.c_int32)),
        ("rank_count", ctypes.c_int32),
        ("has_mpi_comm", ctypes.c_int32),
        ("mpi_comm", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class _Op(ctypes.Structure):
    """hvd_op."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("kind", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("reduce_op", ctypes.c_int32),
        ("root_rank", ctypes.c_int32),
        ("process_set", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("name", ctypes.c_char_p),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("stream", ctypes.c_void_p),
        ("splits", ctypes.POINTER(ctypes.c_int32)),
        ("split_count", ctypes.c_int32),
        ("priority", ctypes.c_int32),
    ]


class _Output(ctypes.Structure):
    """hvd_output."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
        ("size_bytes", ctypes.c_int64),
        ("ndim", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_DIMS),
        ("received_splits", ctypes.POINTER(ctypes.c_int32)),
        ("received_count", ctypes.c_int32),
        ("reserved2", ctypes.c_int32),
    ]


_POINTER_BYTES = ctypes.sizeof(ctypes.c_size_t)
_OP_SIZE = ctypes.sizeof(_Op)
_ShapeArrays = [ctypes.c_int64 * n for n in range(MAX_DIMS + 1)]


def _find() -> str:
    package = pathlib.Path(__file__).resolve().parent.parent
    candidates = [package / "lib" / "libhvd.so", package / "libhvd.so"]
    if os.environ.get("HVD_LIBRARY"):
        candidates.append(pathlib.Path(os.environ["HVD_LIBRARY"]))
    for path in candidates:
        if path.is_file():
            return str(path)
    raise ImportError(
        "libhvd.so was not found; looked at " + ", ".join(map(str, candidates)) + ". Install the package with pip, or "
        "set HVD_LIBRARY to the library that the build left in its lib folder."
    )


def _load() -> ctypes.CDLL:
    path = _find()
    lib = ctypes.CDLL(path)
    found = lib.hvd_abi_version()
    if found != ABI_VERSION:
        raise HorovodVersionMismatchError(
            f"{path} has version {found} of the C interface, this package needs {ABI_VERSION}; install both from one "
            "build"
        )
    context, handle, number = ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)
    lib.hvd_init.argtypes = [ctypes.c_void_p]
    lib.hvd_feature.argtypes = [context, ctypes.c_int32]
    lib.hvd_shutdown.argtypes = []
    lib.hvd_is_initialized.argtypes = []
    for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
        getattr(lib, "hvd_" + name).argtypes = [context]
    lib.hvd_enqueue.argtypes = [context, ctypes.POINTER(_Op), number]
    lib.hvd_enqueue_group.argtypes = [context, ctypes.POINTER(ctypes.POINTER(_Op)), ctypes.c_int32, number]
    lib.hvd_poll.argtypes = [context, handle, ctypes.POINTER(ctypes.c_int32)]
    lib.hvd_wait.argtypes = [context, handle]
    lib.hvd_result.argtypes = [context, handle, ctypes.POINTER(_Output)]
    lib.hvd_release.argtypes = [context, handle]
    if hasattr(lib, "hvd_fetch"):
        lib.hvd_fetch.argtypes = [context, handle, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    lib.hvd_finish.argtypes = [context, number, ctypes.c_int32]
    ranks = ctypes.POINTER(ctypes.c_int32)
    lib.hvd_process_set_add.argtypes = [context, ranks, ctypes.c_int32, ranks]
    lib.hvd_process_set_remove.argtypes = [context, ctypes.c_int32]
    lib.hvd_process_numbers.argtypes = [context, ranks, ctypes.c_int32, ranks]
    lib.hvd_process_set_ranks.argtypes = [context, ctypes.c_int32, ranks, ctypes.c_int32, ranks]
    lib.hvd_buffer_create.argtypes = [context, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p)]
    lib.hvd_buffer_destroy.argtypes = [context, ctypes.c_void_p]
    lib.hvd_last_error.restype = ctypes.c_char_p
    lib.hvd_version.restype = ctypes.c_char_p
    return lib


lib = _load()


def last_error() -> str:
    """The text of this thread's last failure."""
    return (lib.hvd_last_error() or b"").decode("utf-8", "replace")


def error_of(status: int) -> Exception:
    """The exception for a status that the last call on an operation returned."""
    return ValueError(last_error()) if status == INVALID else HorovodInternalError(last_error(), status)


# The calls of every step. Without argtypes ctypes converts nothing; they are given None, and byref() objects that are
# made once.
_enqueue = lib["hvd_enqueue"]
_execute = lib["hvd_execute"]
_enqueue_group = lib["hvd_enqueue_group"]
_enqueue_many = lib["hvd_enqueue_many"]


class Plan:
    """One operation, ready to be started again and again: all of hvd_op but where its memory is.

    Making it costs as much as several small operations; starting it is one call. A plan must not be used by two threads
    at once.
    """

    __slots__ = ("op", "address", "reference", "memory", "handle", "handle_reference")

    def __init__(
        self,
        kind: int,
        dtype: int,
        shape: Sequence[int],
        name: Optional[str],
        reduce_op: int = SUM,
        root_rank: int = 0,
        prescale: float = 1.0,
        postscale: float = 1.0,
        process_set: int = 0,
        splits: Sequence[int] = (),
        priority: int = 0,
    ) -> None:
        ndim = len(shape)
        if ndim > MAX_DIMS:
            raise ValueError(f"a tensor of {ndim} dimensions: more than the {MAX_DIMS} that are supported")
        self.op = _Op(
            _OP_SIZE, 3, kind, dtype, reduce_op, root_rank, process_set, _DEVICE_CPU, ndim, 0,
            _ShapeArrays[ndim](*shape), None if name is None else name.encode(), None, None, prescale, postscale, None,
            (ctypes.c_int32 * len(splits))(*splits) if splits else None, len(splits), priority,
        )  # fmt: skip
        self.address = ctypes.addressof(self.op)
        self.reference = ctypes.byref(self.op)
        # The fields input and output, as an array: the fastest way to set them.
        self.memory = (ctypes.c_size_t * 2).from_buffer(self.op, _Op.input.offset)
        self.handle = ctypes.c_int64()
        self.handle_reference = ctypes.byref(self.handle)

    def work_at(self, device: int, stream: int) -> None:
        """Its memory is a GPU's, by CUDA's number; it begins after what is on the stream when it is started."""
        self.op.device = device
        self.op.stream = stream

    def enqueue(self, input_address: int, output_address: int) -> int:
        """Starts it and returns the library's handle. The memory must stay alive until a wait for it has returned."""
        memory = self.memory
        memory[0] = input_address
        memory[1] = output_address
        status = _enqueue(None, self.reference, self.handle_reference)
        if status:
            raise error_of(status)
        return self.handle.value

    def execute(self, input_address: int, output_address: int) -> int:
        """Does it, in memory of the caller's; the status. Nothing is left to release."""
        memory = self.memory
        memory[0] = input_address
        memory[1] = output_address
        return _execute(None, self.reference, None)

    def execute_for_result(self, input_address: int, output_address: int) -> int:
        """Does it; the status. `handle` names the result, or is 0."""
        memory = self.memory
        memory[0] = input_address
        memory[1] = output_address
        return _execute(None, self.reference, self.handle_reference)


class HandleArray:
    """Room for the handles of operations that are waited for and forgotten together."""

    __slots__ = ("array",)

    def __init__(self, count: int) -> None:
        self.array = (ctypes.c_int64 * max(count, 1))()

    def place(self, index: int) -> object:
        """Where an operation's handle goes; for `enqueue_into` and `Group`."""
        return ctypes.byref(self.array, index * 8)

    def finish(self) -> int:
        """Waits for all that were started and forgets them, also when one fails; the first failure's status."""
        return lib.hvd_finish(None, self.array, len(self.array))


class Batch:
    """Room for plans that are collected, to be started several in a call, each by itself."""

    __slots__ = ("handles", "addresses", "started", "count")

    def __init__(self, capacity: int) -> None:
        self.handles = HandleArray(capacity)
        self.addresses = (ctypes.c_size_t * max(capacity, 1))()
        self.started = 0  # of those that were put, the first ones
        self.count = 0

    def put(self, plan: Plan) -> None:
        """Adds a plan, which must stay alive, as its memory must."""
        self.addresses[self.count] = plan.address
        self.count += 1

    def start(self, waits: int) -> int:
        """Starts what was put since the last call; the status. After a failure some are started, and the rest never are.
        `waits`: WAITS_NEXT when the caller calls `handles.finish` next, WAITS_SOON when it likely does within a moment."""
        status = 0
        while self.started < self.count and not status:
            count = min(self.count - self.started, MAX_GROUP)
            status = _enqueue_many(
                None, ctypes.byref(self.addresses, self.started * _POINTER_BYTES), count, waits,
                self.handles.place(self.started),
            )  # fmt: skip
            self.started += count
        self.started = self.count
        return status

    def clear(self) -> None:
        """Forgets what was put. What was started must have been finished."""
        self.started = self.count = 0


class Group:
    """Plans that are started together, in one call, and done together or not at all."""

    __slots__ = ("plans", "pointers", "place")

    def __init__(self, plans: Sequence[Plan], place: object) -> None:
        self.plans = plans
        self.pointers = (ctypes.POINTER(_Op) * len(plans))(*(ctypes.pointer(plan.op) for plan in plans))
        self.place = place

    def enqueue(self) -> int:
        """Starts them, the memory of each being set; the status."""
        return _enqueue_group(None, self.pointers, len(self.plans), self.place)


def enqueue_group(plans: Sequence[Plan]) -> Tuple[int, ...]:
    """Starts plans whose memory is set, done together or not at all, and returns the library's handles."""
    handles = (ctypes.c_int64 * len(plans))()
    status = Group(plans, ctypes.byref(handles)).enqueue()
    if status:
        raise error_of(status)
    return tuple(handles)


def is_done(handle: int) -> bool:
    """Whether `wait` would return at once."""
    done = ctypes.c_int32()
    status = lib.hvd_poll(None, handle, ctypes.byref(done))
    if status:
        raise error_of(status)
    return bool(done.value)


def result(handle: int) -> _Output:
    """What a finished operation left; its memory is valid until `release`."""
    output = _Output(ctypes.sizeof(_Output), 2)
    status = lib.hvd_result(None, handle, ctypes.byref(output))
    if status:
        raise error_of(status)
    return output


def fetch(handle: int, address: int, size_bytes: int, stream: int) -> None:
    """Copies what a finished operation left to memory of a GPU or the host, on the stream."""
    status = lib.hvd_fetch(None, handle, address, size_bytes, stream)
    if status:
        raise error_of(status)


def release(handle: int) -> None:
    """Forgets a handle. One that is already forgotten (the job was left meanwhile) is no error."""
    lib.hvd_release(None, handle)


def add_process_set(ranks: Sequence[int], call: Callable[..., int]) -> int:
    """The number of a new process set. `call` makes a call that waits (_wait.call)."""
    number = ctypes.c_int32()
    status = call(
        lib.hvd_process_set_add, None, (ctypes.c_int32 * max(len(ranks), 1))(*ranks), len(ranks), ctypes.byref(number)
    )
    if status:
        raise error_of(status)
    return number.value


def remove_process_set(number: int, call: Callable[..., int]) -> int:
    """The status."""
    return call(lib.hvd_process_set_remove, None, number)


def _numbers_of(function: Callable[..., int], *arguments: object) -> List[int]:
    """What a function hands out into an array, of which it tells how large it must be."""
    count = ctypes.c_int32()
    room = 0
    while True:
        array = (ctypes.c_int32 * max(room, 1))()
        status = function(None, *arguments, array, room, ctypes.byref(count))
        if status:
            raise error_of(status)
        if count.value <= room:
            return array[: count.value]
        room = count.value


def process_sets() -> Dict[int, List[int]]:
    """The ranks of each process set by its number."""
    return {
        number: _numbers_of(lib.hvd_process_set_ranks, number) for number in _numbers_of(lib.hvd_process_numbers)
    }


def create_buffer(size_bytes: int, call: Callable[..., int]) -> int:
    """Where the memory of a new buffer begins. `call` makes a call that waits (_wait.call)."""
    data = ctypes.c_void_p()
    status = call(lib.hvd_buffer_create, None, size_bytes, ctypes.byref(data))
    if status:
        raise error_of(status)
    return data.value


def destroy_buffer(address: int, call: Callable[..., int]) -> None:
    """Gives a buffer's memory back."""
    status = call(lib.hvd_buffer_destroy, None, address)
    if status:
        raise error_of(status)


def _timeline_function(name: str) -> Callable[..., int]:
    if not hasattr(lib, name):
        raise ValueError("timelines are not supported yet by this libhvd")
    return getattr(lib, name)


def start_timeline(path: str, mark_cycles: bool) -> None:
    """hvd_timeline_start. ValueError when it fails, or is not there."""
    if _timeline_function("hvd_timeline_start")(None, path.encode(), ctypes.c_int32(mark_cycles)):
        raise ValueError(last_error())


def stop_timeline() -> None:
    """hvd_timeline_stop. ValueError when it fails, or is not there."""
    if _timeline_function("hvd_timeline_stop")(None):
        raise ValueError(last_error())


def join(ranks: Sequence[int], mpi_comm: Optional[int], timeout_s: float = 0.0) -> int:
    """hvd_init, for these ranks (all, when there are none) or those of a communicator; the status. Seconds: 0 for the usual ones."""
    options = _Options(size=ctypes.sizeof(_Options), version=2, timeout_s=timeout_s)
    options.ranks = (ctypes.c_int32 * max(len(ranks), 1))(*ranks)
    options.rank_count = len(ranks)
    if mpi_comm is not None:
        options.has_mpi_comm, options.mpi_comm = 1, mpi_comm
    return lib.hvd_init(ctypes.byref(options))


def has_devices() -> bool:
    """Whether operations on memory of GPUs can be asked for here; if not, last_error() says why."""
    return bool(feature(HAS_CUDA))


def feature(number: int) -> int:
    """hvd_feature: what the library can use here, or what the job uses."""
    return lib.hvd_feature(None, number)
