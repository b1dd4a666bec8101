"""The binding to libhvd: its calls as Python functions, with exceptions for status codes.

_abi.py declares the C interface. basics.py and _wait.py call the functions of it that need nothing of this file.
"""

import array
import ctypes
import functools
import os
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from horovod.common._abi import MAX_DIMS, Op, Options, Output, lib
from horovod.common.exceptions import HorovodInternalError

MAX_GROUP = 4096
MAC_BYTES = 32

INVALID = 1
NOT_FOUND = 2
UNREACHABLE = 3
TIMEOUT = 5
LOST_PEER = 7
CANCELLED = 8

ALLREDUCE, ALLGATHER, BROADCAST, BARRIER, REDUCESCATTER, ALLTOALL, JOIN = range(7)
AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)
UINT8, INT8, UINT16, INT16, INT32, INT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64, BOOL = range(11)

GOES_ON, WAITS_NEXT, WAITS_SOON = range(3)  # what the caller of Batch.start() does next
HAS_MPI, USES_MPI, MPI_THREADS, HAS_CUDA, HAS_NCCL, NODE_CORES, HAS_CHANGED = 1, 2, 3, 4, 5, 6, 7  # for feature()
IS_GROWING = 8

# The kinds of failure for tell_failure().
FAILURE_ENDS, FAILURE_FOLLOWS, FAILURE_NOTICED = range(3)

_DEVICE_CPU = -1
_POINTER_BYTES = ctypes.sizeof(ctypes.c_size_t)
_OP_SIZE = ctypes.sizeof(Op)
_ShapeArrays = [ctypes.c_int64 * n for n in range(MAX_DIMS + 1)]


def last_error() -> str:
    """Returns the text of this thread's last failure."""
    return (lib.hvd_last_error() or b"").decode("utf-8", "replace")


def error_of(status: int) -> Exception:
    """Returns the exception for a status that the last call on an operation returned."""
    return ValueError(last_error()) if status == INVALID else HorovodInternalError(last_error(), status)


def check(status: int) -> None:
    """Raises that exception, if the status is one of a failure."""
    if status:
        raise error_of(status)


# The calls of every step. Without argtypes ctypes converts nothing, so they are given None, and byref() objects that
# are made once.
_enqueue = lib["hvd_enqueue"]
_execute = lib["hvd_execute"]
_enqueue_group = lib["hvd_enqueue_group"]
_execute_group = lib["hvd_execute_group"]
# This one calls functions of frameworks, so the interpreter's lock is not released for it. It waits for nothing.
_set_memory = ctypes.PyDLL(lib._name)["hvd_set_memory"]
_INPUT, _OUTPUT = 1, 2
_enqueue_many = lib["hvd_enqueue_many"]


class Plan:
    """One operation, ready to be started again and again: all of hvd_op but where its memory is.

    Making it costs as much as several small operations; starting it is one call. A plan must not be used by two threads
    at once.
    """

    __slots__ = ("op", "address", "reference", "memory", "placed", "run", "handle", "handle_reference")

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
        self.op = Op(
            _OP_SIZE, 1, kind, dtype, reduce_op, root_rank, process_set, _DEVICE_CPU, ndim, 0,
            _ShapeArrays[ndim](*shape), None if name is None else name.encode(), None, None, prescale, postscale, None,
            (ctypes.c_int32 * len(splits))(*splits) if splits else None, len(splits), priority,
        )  # fmt: skip
        self.address = ctypes.addressof(self.op)
        self.reference = ctypes.byref(self.op)
        # Views the fields input and output as an array: the fastest way to set them.
        self.memory = (ctypes.c_size_t * 2).from_buffer(self.op, Op.input.offset)
        self.placed = -1  # for who keeps plans: the address that both have, if nobody else has used the plan since
        # Does it where `memory` says, and returns the status. Nothing is left to release.
        self.run = functools.partial(_execute, None, self.reference, None)
        self.handle = ctypes.c_int64()
        self.handle_reference = ctypes.byref(self.handle)

    def work_at(self, device: int, stream: int) -> None:
        """Sets memory on a GPU, by CUDA's number. The operation begins after what is on the stream when it is
        started."""
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
        """Does it, in the caller's memory, and returns the status. Nothing is left to release."""
        memory = self.memory
        memory[0] = input_address
        memory[1] = output_address
        return self.run()

    def execute_for_result(self, input_address: int, output_address: int) -> int:
        """Does it, and returns the status. `handle` names the result, or is 0."""
        memory = self.memory
        memory[0] = input_address
        memory[1] = output_address
        return _execute(None, self.reference, self.handle_reference)


class HandleArray:
    """HandleArray is room for the handles of operations that are waited for and forgotten together."""

    __slots__ = ("array",)

    def __init__(self, count: int) -> None:
        self.array = (ctypes.c_int64 * max(count, 1))()

    def place(self, index: int) -> object:
        """Returns where an operation's handle goes; for `enqueue_into` and `Group`."""
        return ctypes.byref(self.array, index * 8)

    def finish(self) -> int:
        """Waits for all that were started and forgets them, even when one fails. Returns the first failure's status."""
        return lib.hvd_finish(None, self.array, len(self.array))


class Batch:
    """Batch is room for plans that are collected, and then started in one call, each by itself."""

    __slots__ = ("handles", "addresses", "array", "started")

    def __init__(self, capacity: int) -> None:
        self.handles = HandleArray(capacity)
        # The addresses of the plans that were put, `capacity` at most. The plans and their memory must stay alive. Any
        # thread may append one at any time; everything else here is done by one thread at a time.
        self.addresses: List[int] = []
        self.array = (ctypes.c_size_t * max(capacity, 1))()
        self.started = 0  # the number of plans that were started, the first ones of those put

    def start(self, waits: int) -> int:
        """Starts what was put since the last call, and returns the status. After a failure some are started, and the
        rest never are. `waits` is WAITS_NEXT when the caller calls `handles.finish` next, WAITS_SOON when it likely
        does so within a moment."""
        begin = self.started
        end = self.started = len(self.addresses)  # other threads may append meanwhile
        self.array[begin:end] = self.addresses[begin:end]
        status = 0
        while begin < end and not status:
            count = min(end - begin, MAX_GROUP)
            status = _enqueue_many(
                None, ctypes.byref(self.array, begin * _POINTER_BYTES), count, waits, self.handles.place(begin)
            )
            begin += count
        return status

    def clear(self) -> None:
        """Forgets what was put. What was started must have been finished."""
        self.addresses.clear()
        self.started = 0


class HostGroup:
    """HostGroup is a group of operations in the caller's memory on the host, ready to be started again and again: all but
    where the memory is. It must not be used by two threads at once.

    The operations stand in one piece of memory, so that all addresses are set in two assignments.
    """

    __slots__ = ("count", "_plans", "_memory", "_pointers", "_inputs", "_outputs")

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.count = count = len(plans)
        self._plans = plans  # which hold what the operations point to: names and shapes
        self._memory = bytearray(count * _OP_SIZE)
        ops = (Op * count).from_buffer(self._memory)
        for index, plan in enumerate(plans):
            ops[index] = plan.op
        begin = ctypes.addressof(ops)
        self._pointers = (ctypes.c_size_t * count)(*range(begin, begin + count * _OP_SIZE, _OP_SIZE))
        words = memoryview(self._memory).cast("Q")
        self._inputs = words[Op.input.offset // _POINTER_BYTES :: _OP_SIZE // _POINTER_BYTES]
        self._outputs = words[Op.output.offset // _POINTER_BYTES :: _OP_SIZE // _POINTER_BYTES]

    def set_inputs(self, addresses: "array.array[int]") -> None:
        """Sets where the inputs are; the array, of type "Q", holds an address for each operation."""
        self._inputs[:] = addresses

    def set_outputs(self, addresses: "array.array[int]") -> None:
        """Sets where the outputs are."""
        self._outputs[:] = addresses

    def set_memory_of(self, tensors: Sequence[object], view: ctypes.c_void_p, is_in_place: bool) -> bool:
        """Sets where the inputs are, and the outputs of operations in place. False: some tensor does not fit to its operation.
        `view` is the framework's function that shows a tensor to C (hvd_tensor_view); it may raise an exception here."""
        objects = array.array("Q", map(id, tensors))
        which = _INPUT | _OUTPUT if is_in_place else _INPUT
        address = ctypes.c_void_p(objects.buffer_info()[0])
        return not _set_memory(ctypes.byref(self._pointers), address, len(objects), which, view)

    def enqueue(self) -> HandleArray:
        """Starts it. The memory must stay alive until a wait for the handles has returned."""
        handles = HandleArray(self.count)
        status = _enqueue_group(None, ctypes.byref(self._pointers), self.count, handles.place(0))
        if status:
            raise error_of(status)
        return handles

    def execute(self) -> int:
        """Does it, and returns the status. Nothing is left to release."""
        return _execute_group(None, ctypes.byref(self._pointers), self.count)


class Group:
    """Group is plans that are started in one call, and done together or not at all."""

    __slots__ = ("plans", "pointers", "place")

    def __init__(self, plans: Sequence[Plan], place: object) -> None:
        self.plans = plans
        self.pointers = (ctypes.POINTER(Op) * len(plans))(*(ctypes.pointer(plan.op) for plan in plans))
        self.place = place

    def enqueue(self) -> int:
        """Starts them once the memory of each is set, and returns the status."""
        return _enqueue_group(None, self.pointers, len(self.plans), self.place)


def enqueue_group(plans: Sequence[Plan]) -> Tuple[int, ...]:
    """Starts plans whose memory is set, done together or not at all, and returns the library's handles."""
    handles = (ctypes.c_int64 * len(plans))()
    check(Group(plans, ctypes.byref(handles)).enqueue())
    return tuple(handles)


def is_done(handle: int) -> bool:
    """Returns whether `wait` would return at once."""
    done = ctypes.c_int32()
    check(lib.hvd_poll(None, handle, ctypes.byref(done)))
    return bool(done.value)


def result(handle: int) -> Output:
    """Returns what a finished operation left; its memory is valid until `release`."""
    output = Output(ctypes.sizeof(Output), 1)
    check(lib.hvd_result(None, handle, ctypes.byref(output)))
    return output


def fetch(handle: int, address: int, size_bytes: int, stream: int) -> None:
    """Copies what a finished operation left to memory of a GPU or the host, on the stream."""
    check(lib.hvd_fetch(None, handle, address, size_bytes, stream))


def mac(address: int, size_bytes: int) -> bytes:
    """Returns what only a rank of this job can compute of the memory (hvd_mac)."""
    made = ctypes.create_string_buffer(MAC_BYTES)
    check(lib.hvd_mac(None, address, size_bytes, made))
    return made.raw


def mac_of_bytes(data: bytes) -> bytes:
    """Returns the same of bytes."""
    return mac(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0, len(data))


def release(handle: int) -> None:
    """Forgets a handle. It is no error if the handle is already forgotten, as when the job was left meanwhile."""
    lib.hvd_release(None, handle)


class DoneQueue:
    """DoneQueue gives handles of operations in the order in which these end. It lives as long as the process."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue = ctypes.c_void_p()
        check(lib.hvd_queue_create(ctypes.byref(self._queue)))

    def put(self, handle: int) -> None:
        """Makes `next` return the handle once, when the operation has ended; 0 at once."""
        check(lib.hvd_queue_put(self._queue, None, handle))

    def next(self, timeout_s: float) -> Optional[int]:
        """Returns the next one, or None when the time is over."""
        handle = ctypes.c_int64()
        status = lib.hvd_queue_next(self._queue, timeout_s, ctypes.byref(handle))
        if status not in (0, TIMEOUT):
            raise error_of(status)
        return None if status else handle.value


def add_process_set(ranks: Sequence[int], call: Callable[..., int], by_members: bool = False) -> int:
    """Returns the number of a new process set. `call` makes a call that waits (_wait.call)."""
    number = ctypes.c_int32()
    add = lib.hvd_process_set_add_by_members if by_members else lib.hvd_process_set_add
    check(call(add, None, (ctypes.c_int32 * max(len(ranks), 1))(*ranks), len(ranks), ctypes.byref(number)))
    return number.value


def remove_process_set(number: int, call: Callable[..., int]) -> int:
    """Removes a process set, and returns the status."""
    return call(lib.hvd_process_set_remove, None, number)


def _numbers_of(function: Callable[..., int], *arguments: object) -> List[int]:
    """Returns what a function writes into an array, whose size the function itself tells."""
    count = ctypes.c_int32()
    room = 0
    while True:
        array = (ctypes.c_int32 * max(room, 1))()
        check(function(None, *arguments, array, room, ctypes.byref(count)))
        if count.value <= room:
            return array[: count.value]
        room = count.value


def process_sets() -> Dict[int, List[int]]:
    """Returns the ranks of each process set by its number."""
    return {
        number: _numbers_of(lib.hvd_process_set_ranks, number) for number in _numbers_of(lib.hvd_process_set_numbers)
    }


def create_buffer(size_bytes: int, call: Callable[..., int]) -> int:
    """Returns where the memory of a new buffer begins. `call` makes a call that waits (_wait.call)."""
    data = ctypes.c_void_p()
    check(call(lib.hvd_buffer_create, None, size_bytes, ctypes.byref(data)))
    return data.value


def destroy_buffer(address: int, call: Callable[..., int]) -> None:
    """Gives a buffer's memory back."""
    check(call(lib.hvd_buffer_destroy, None, address))


def start_timeline(path: str, mark_cycles: bool) -> bool:
    """Calls hvd_timeline_start. Returns False while a timeline is being written. ValueError when it fails."""
    status = lib.hvd_timeline_start(None, os.fsencode(path), ctypes.c_int32(mark_cycles))
    if status not in (0, INVALID):
        raise ValueError(last_error())
    return not status


def stop_timeline() -> None:
    """Calls hvd_timeline_stop. ValueError when it fails."""
    if lib.hvd_timeline_stop(None):
        raise ValueError(last_error())


def join(ranks: Sequence[int], mpi_comm: Optional[int], timeout_s: float = 0.0) -> int:
    """Calls hvd_init for these ranks (all, when there are none) or those of a communicator, and returns the status.
    Seconds: 0 for the usual ones."""
    options = Options(size=ctypes.sizeof(Options), version=1, timeout_s=timeout_s)
    options.ranks = (ctypes.c_int32 * max(len(ranks), 1))(*ranks)
    options.rank_count = len(ranks)
    if mpi_comm is not None:
        options.has_mpi_comm, options.mpi_comm = 1, mpi_comm
    return lib.hvd_init(ctypes.byref(options))


def has_devices() -> bool:
    """Returns whether operations on memory of GPUs can be asked for here; if not, last_error() says why."""
    return bool(feature(HAS_CUDA))


def feature(number: int) -> int:
    """Calls hvd_feature: what the library can use here, or what the job uses."""
    return lib.hvd_feature(None, number)


def tell_failure(kind: int, exit_code: int, has_committed: bool, what: str) -> None:
    """Tells hvdrun of a failure in this process, if hvdrun started it. Best effort."""
    lib.hvd_report_failure(kind, exit_code, has_committed, what.encode("utf-8", "replace"))
