"""libhvd under torch.distributed: `import horovod.torch.backend`, then

    torch.distributed.init_process_group("hvd")

in a script that hvdrun started. DistributedDataParallel, FSDP and whatever else uses process groups then run on libhvd:
tensors on NVIDIA GPUs by NCCL where it can use that, those of other devices through host memory. all_reduce, broadcast, all_gather_into_tensor and
reduce_scatter_tensor go on after the call with async_op=True; the others are done when it returns. Each group must see its
operations in the same order on all its ranks, as torch demands anyway. send, recv and batch_isend_irecv go over libhvd's links, in
any size and order. An operation that takes longer than the timeout of its group (init_process_group, new_group) raises
HorovodInternalError, and this rank leaves the job.
A group of some of the ranks (torch.distributed.new_group, a dimension of a DeviceMesh) is a process set, that of
`hvd.add_process_set` where there is one of these ranks, or else one that its members make, as two ranks do that send each other
messages. It stays until hvd.shutdown(),
for the next group of the same ranks, and hvd.add_process_set refuses these ranks then. Groups of the same ranks at one time
share it, and may be used by different threads: all but the first name their operations.

Complex numbers are summed and averaged, and values of any type can be moved. Refused, with an error that says so: groups
whose ranks are not in ascending order, recv from any rank, bitwise reductions, "hvd" for the tensors of some devices only, and
a group that was made in a job which this process has left.
"""

import functools
import itertools
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, TypeVar

import torch
import torch.distributed as dist

from horovod.torch import _version

_version.demand(2, 1, for_what="torch.distributed on libhvd", otherwise=", with which the rest of horovod.torch works")

from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    _create_work_from_future,
)
from torch.futures import Future

from horovod.common import _lib, basics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, add_by_members, global_process_set, number_of
from horovod.torch import _limits, _sparse, mpi_ops
from horovod.torch._messages import Messages
from horovod.torch._tensors import as_bytes, as_was
from horovod.torch._works import LaterWork, Operation, context, later_in_place, later_into
from horovod.torch.compression import Compression

NAME = "hvd"
_T = TypeVar("_T", bound=Callable[..., Any])

# Torch before 2.8 does not say whether the caller goes on, and its C++ code loses a Work that is written in Python. There a
# collective is done when its call returns. Messages go on, because they wait for each other and only Python sends them.
_CAN_GO_ON = hasattr(AllreduceOptions(), "asyncOp")

_DEFAULT_TIMEOUT_S = dist.default_pg_timeout.total_seconds()
_MOST_VALUES = 0x7FFFFFFF  # from one rank to one rank, in an alltoall of lists

_OPERATORS = {
    dist.ReduceOp.SUM: _lib.SUM,
    dist.ReduceOp.AVG: _lib.AVERAGE,
    dist.ReduceOp.MIN: _lib.MIN,
    dist.ReduceOp.MAX: _lib.MAX,
    dist.ReduceOp.PRODUCT: _lib.PRODUCT,
}
_LINEAR = (_lib.SUM, _lib.AVERAGE)


def _reduction(options: Any) -> Dict[str, Any]:
    """Returns the arguments of mpi_ops that say how values are reduced."""
    for theirs, ours in _OPERATORS.items():
        if options.reduceOp == theirs:
            return {"op": ours}
    if options.reduceOp == dist.ReduceOp.PREMUL_SUM:
        return {"op": _lib.SUM, "prescale_factor": float(options.reduceOp.__getstate__()[1])}
    raise NotImplementedError(f"the backend {NAME} has no reduction {options.reduceOp}")


def _numbers(tensor: torch.Tensor, reduction: Dict[str, Any]) -> torch.Tensor:
    """Returns the tensor as the library can reduce it: complex numbers are pairs of real ones in a sum."""
    is_pairs = tensor.is_complex() and reduction["op"] in _LINEAR
    return torch.view_as_real(tensor.resolve_conj()) if is_pairs else tensor


def _done(result: Any) -> Any:
    future: Future = Future()
    future.set_result(result)
    return _create_work_from_future(future)


def _seconds_of(timeout: Any) -> Optional[float]:
    """Returns the timeout; None if none was given, for which torch's options have a negative one."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else 0.0
    return seconds if seconds > 0 else None


def _limited(method: _T) -> _T:
    """Runs a collective with its timeout: the group's, unless its options have one. One that goes on after it is an
    Operation."""
    what = method.__name__.strip("_")

    @functools.wraps(method)
    def limited(self: "HvdProcessGroup", *arguments: Any, **options: Any) -> Any:
        asked = arguments[-1] if arguments else options.get("opts")
        self._demand_usable()
        seconds = _seconds_of(getattr(asked, "timeout", None)) or self._timeout_s
        entry = _limits.begin(f"{what} of the group {self._name!r}", seconds)
        try:
            result = method(self, *arguments, **options)
        except BaseException as error:
            told = entry.end(error)
            if told is error:
                raise
            raise told from error
        if not isinstance(result, Operation):
            entry.end(None)
            return result
        entry.would_wait, result.limit = result.would_wait, entry
        if not _CAN_GO_ON and what not in ("send", "recv"):
            result.complete()
            if result.error is not None:
                raise result.error
            return _done(result.result)
        result.path = result.path or self.path_of_next()
        work = LaterWork(result)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    return limited


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor as one row, which gathering needs."""
    return as_bytes(tensor.detach().reshape(1, -1))


def _write(output: torch.Tensor, result: torch.Tensor, dtype: torch.dtype) -> None:
    """Copies a result, of values of this type, into the output, whatever its shape."""
    output.detach().copy_(as_was(result, dtype).view(output.shape))


# The numbers of the process sets that have had a group.
_sets_with_group: Set[int] = set()
basics.when_left.append(_sets_with_group.clear)


class HvdProcessGroup(dist.ProcessGroup):
    """HvdProcessGroup is a torch process group whose operations are libhvd's, on a process set."""

    def __init__(self, options: Any, process_set: ProcessSet) -> None:
        super().__init__(options.group_rank, options.group_size)
        self._process_set = process_set
        self._messages = Messages(options.group_id)
        self._timeout_s = _seconds_of(options.timeout) or _DEFAULT_TIMEOUT_S
        # An operation without a name goes by its number among the set's operations. If a set has several groups, those
        # numbers match on all ranks only while these use the groups in the same order, which torch does not demand.
        self._is_first = number_of(process_set) not in _sets_with_group
        _sets_with_group.add(number_of(process_set))
        self._name = options.group_id
        self._count = itertools.count()
        self._paths = itertools.count()
        self._generation = basics.generation
        self._is_checked = False
        self._coalesced: Optional[List[LaterWork]] = None  # what goes on since torch began to coalesce

    def _demand_usable(self) -> None:
        """Raises where an operation would not do what the script means."""
        if self._generation != basics.generation and basics.is_initialized():
            raise RuntimeError(
                f"the group {self._name!r} was made in a job that this process has left, as after a reset of hvd.elastic, and its "
                "ranks are not those of the job now; make it anew: dist.destroy_process_group(), then dist.init_process_group("
                f'"{NAME}", store=dist.HashStore(), rank=hvd.rank(), world_size=hvd.size())'
            )
        if not self._is_checked:
            _demand_all_devices(self)
            self._is_checked = True

    def _where(self) -> Dict[str, Any]:
        """Returns the arguments that say in which set the next operation runs, and under which name."""
        return {"process_set": self._process_set, "name": self._next_name()}

    def _next_name(self) -> Optional[str]:
        """Returns None when the operation goes by its number in the set."""
        entered = context()
        if entered is not None:
            return f"{self._name}.noname.of.{entered.next_path()}"
        return None if self._is_first else f"{self._name}.noname.{next(self._count)}"

    def path_of_next(self) -> str:
        """Returns the path of an operation that goes on, for callbacks on its future."""
        entered = context()
        return f"{self._name}.{next(self._paths)}" if entered is None else entered.next_path()

    def getBackendName(self) -> str:
        return NAME

    @property
    def _device_types(self) -> List[torch.device]:
        """Returns the devices of whose tensors the group can take; torch asks before it checkpoints, among others."""
        return [torch.device(name) for name in ("cpu", "cuda") if name == "cpu" or torch.cuda.is_available()]

    def _get_backend(self, device: torch.device) -> "HvdProcessGroup":
        """Returns the one backend for all devices."""
        return self

    supports_coalescing = False
    supports_splitting = False
    supports_time_estimate = False
    supports_shrinking = False

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Returns False: torch allocates."""
        return False

    def _start_coalescing(self, device: torch.device) -> None:
        """Begins what torch wants to wait for as one; the operations start as ever."""
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> Any:
        works, self._coalesced = self._coalesced or [], None
        return LaterWork(Operation([], lambda _: [work.wait() for work in works])) if works else _done([])

    def abort(self) -> None:
        """Ends all waits, of which the library can end none alone: leaves the job."""
        if self._generation == basics.generation:
            basics.shutdown()

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of operations from now on."""
        self._timeout_s = _seconds_of(timeout) or self._timeout_s

    _set_default_timeout = set_timeout

    @property
    def group_name(self) -> str:
        """Returns the name by which torch knows the group. torch asks even after it has forgotten the group."""
        return self._name

    pg_name = group_name

    def _global(self, group_rank: int) -> int:
        return self._process_set.ranks[group_rank]

    # ---- same shape on every rank ----

    @_limited
    def allreduce(self, tensors: List[torch.Tensor], opts: Any = AllreduceOptions()) -> Any:
        how = _reduction(opts)
        if any(tensor.layout is torch.sparse_coo for tensor in tensors):
            return self._sparse_allreduce(tensors, **how)
        if _goes_on(opts):
            return later_in_place(
                tensors, lambda t: mpi_ops.allreduce_async_(_numbers(t, how), **how, **self._where())
            )
        for tensor in tensors:
            _in_place(tensor, lambda t: mpi_ops.allreduce_(_numbers(t, how), **how, **self._where()))
        return _done(tensors)

    def _sparse_allreduce(self, tensors: List[torch.Tensor], op: int, prescale_factor: float = 1.0) -> Operation:
        if prescale_factor != 1.0:
            raise NotImplementedError(f"the backend {NAME} has no factor for sparse tensors; multiply them before")
        names = [f"{self._name}.sparse.noname.{self.path_of_next()}" for _ in tensors]
        results = [
            _sparse.start(tensor.detach(), name, op, self._process_set, Compression.none)
            for tensor, name in zip(tensors, names)
        ]

        def finish(_: List[Any]) -> List[torch.Tensor]:
            with torch.no_grad():
                for tensor, result in zip(tensors, results):
                    tensor.copy_(result().coalesce())
            return list(tensors)

        return Operation([], finish)

    @_limited
    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any = AllreduceCoalescedOptions()) -> Any:
        how = _reduction(opts)
        results = mpi_ops.grouped_allreduce([_numbers(tensor.detach(), how) for tensor in tensors], **how, **self._where())
        for tensor, result in zip(tensors, results):
            _write(tensor, result, tensor.dtype)
        return _done(tensors)

    @_limited
    def broadcast(self, tensors: List[torch.Tensor], opts: Any = BroadcastOptions()) -> Any:
        root = self._global(opts.rootRank)
        if _goes_on(opts):
            return later_in_place(
                tensors, lambda t: mpi_ops.broadcast_async_(as_bytes(t), root, **self._where())
            )
        for tensor in tensors:
            _in_place(tensor, lambda t: mpi_ops.broadcast_(as_bytes(t), root, **self._where()))
        return _done(tensors)

    @_limited
    def reduce(self, tensors: List[torch.Tensor], opts: Any = ReduceOptions()) -> Any:
        how = _reduction(opts)
        for tensor in tensors:
            result = mpi_ops.allreduce(_numbers(tensor.detach(), how), **how, **self._where())
            if self.rank() == opts.rootRank:
                _write(tensor, result, tensor.dtype)
        return _done(tensors)

    @_limited
    def barrier(self, opts: Any = BarrierOptions()) -> Any:
        if self._is_first and context() is None:
            mpi_ops.barrier(process_set=self._process_set)
        else:  # barriers have no names
            mpi_ops.allreduce_(torch.zeros(1, device="cpu"), **self._where())
        return _done([])

    # ---- gathering and scattering ----

    @_limited
    def allgather(
        self, output_tensors: List[List[torch.Tensor]], input_tensors: List[torch.Tensor], opts: Any = AllgatherOptions()
    ) -> Any:
        for outputs, tensor in zip(output_tensors, input_tensors):
            gathered = mpi_ops.allgather(_rows(tensor), **self._where())
            for output, row in zip(outputs, gathered):
                _write(output, row, tensor.dtype)
        return _done(output_tensors)

    @_limited
    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = AllgatherOptions()) -> Any:
        if _goes_on(opts):
            return later_into(output, tensor.dtype, mpi_ops.allgather_async(_rows(tensor), **self._where()))
        _write(output, mpi_ops.allgather(_rows(tensor), **self._where()), tensor.dtype)
        return _done(output)

    all_gather_single = _allgather_base  # its name since torch 2.13

    def allgather_coalesced(
        self, output_lists: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = AllgatherOptions()
    ) -> Any:
        return self.allgather(output_lists, inputs, opts)

    @_limited
    def allgather_into_tensor_coalesced(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = AllgatherOptions()
    ) -> Any:
        results = mpi_ops.grouped_allgather([_rows(tensor) for tensor in inputs], **self._where())
        for output, tensor, result in zip(outputs, inputs, results):
            _write(output, result, tensor.dtype)
        return _done(outputs)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    @_limited
    def gather(
        self, output_tensors: List[List[torch.Tensor]], input_tensors: List[torch.Tensor], opts: Any = GatherOptions()
    ) -> Any:
        # Each rank sends one row to the root, and the root's own one there too.
        splits = [int(rank == opts.rootRank) for rank in range(self.size())]
        received, _ = mpi_ops.alltoall(_rows(input_tensors[0]), splits, **self._where())
        if self.rank() == opts.rootRank:
            for output, row in zip(output_tensors[0], received):
                _write(output, row, input_tensors[0].dtype)
        return _done(output_tensors)

    @_limited
    def scatter(
        self, output_tensors: List[torch.Tensor], input_tensors: List[List[torch.Tensor]], opts: Any = ScatterOptions()
    ) -> Any:
        # The root sends one row to each rank, and the others send nothing.
        output = output_tensors[0]
        splits = [0] * self.size()
        sent = _rows(output)[:0]
        if self.rank() == opts.rootRank:
            splits = [1] * self.size()
            sent = torch.cat([_rows(tensor) for tensor in input_tensors[0]])
        received, _ = mpi_ops.alltoall(sent, splits, **self._where())
        _write(output, received, output.dtype)
        return _done(output_tensors)

    @_limited
    def reduce_scatter(
        self,
        output_tensors: List[torch.Tensor],
        input_tensors: List[List[torch.Tensor]],
        opts: Any = ReduceScatterOptions(),
    ) -> Any:
        for output, parts in zip(output_tensors, input_tensors):
            rows = torch.cat([part.detach().reshape(1, -1) for part in parts])
            self._reduce_scatter_rows(output, rows, opts)
        return _done(output_tensors)

    @_limited
    def _reduce_scatter_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = ReduceScatterOptions()) -> Any:
        rows = tensor.detach().reshape(self.size(), -1)
        how = _reduction(opts)
        if _goes_on(opts) and how["op"] in _LINEAR:
            handle = mpi_ops.reducescatter_async(_numbers(rows, how), **how, **self._where())
            return later_into(output, rows.dtype, handle)
        self._reduce_scatter_rows(output, rows, opts)
        return _done(output)

    reduce_scatter_single = _reduce_scatter_base  # its name since torch 2.13

    @_limited
    def reduce_scatter_tensor_coalesced(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = ReduceScatterOptions()
    ) -> Any:
        for output, tensor in zip(outputs, inputs):
            self._reduce_scatter_rows(output, tensor.detach().reshape(self.size(), -1), opts)
        return _done(outputs)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _reduce_scatter_rows(self, output: torch.Tensor, rows: torch.Tensor, opts: Any) -> None:
        how = _reduction(opts)
        if how["op"] in _LINEAR:
            result = mpi_ops.reducescatter(_numbers(rows, how), **how, **self._where())
        else:
            result = mpi_ops.allreduce(rows, **how, **self._where())[self.rank()]
        _write(output, result, rows.dtype)

    # ---- all to all ----

    @_limited
    def alltoall_base(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = AllToAllOptions(),
    ) -> Any:
        splits = self._rows_for_each("input", tensor, input_split_sizes)
        wanted = self._rows_for_each("output", output, output_split_sizes)
        rows = as_bytes(tensor.detach().unsqueeze(-1))
        received, counts = mpi_ops.alltoall(rows, splits, **self._where())
        if counts.tolist() != wanted:
            raise ValueError(f"all_to_all: rank {self.rank()} wants {wanted} rows, but {counts.tolist()} were sent to it")
        _write(output, received, tensor.dtype)
        return _done(output)

    all_to_all_single = alltoall_base  # its name since torch 2.13

    def _rows_for_each(self, what: str, tensor: torch.Tensor, splits: Sequence[int]) -> List[int]:
        """Returns how many of a tensor's rows go to each rank, or come from it."""
        if tensor.dim() == 0:
            raise ValueError(f"all_to_all: the {what} has no dimension that could be split")
        rows = tensor.shape[0]
        if not splits:
            if rows % self.size():
                raise ValueError(f"all_to_all: the {what} has {rows} rows, which {self.size()} ranks cannot share evenly")
            return [rows // self.size()] * self.size()
        if len(splits) != self.size() or sum(splits) != rows:
            raise ValueError(f"all_to_all: the {what} has {rows} rows for {self.size()} ranks, and its splits are {list(splits)}")
        return list(splits)

    @_limited
    def alltoall(
        self, output_tensors: List[torch.Tensor], input_tensors: List[torch.Tensor], opts: Any = AllToAllOptions()
    ) -> Any:
        splits = [tensor.numel() for tensor in input_tensors]
        if max(splits) > _MOST_VALUES:
            raise ValueError(f"all_to_all: {max(splits)} values for one rank, and at most {_MOST_VALUES} go at once; send parts")
        values = torch.cat([as_bytes(tensor.detach().reshape(-1, 1)) for tensor in input_tensors])
        received, counts = mpi_ops.alltoall(values, splits, **self._where())
        wanted = [tensor.numel() for tensor in output_tensors]
        if counts.tolist() != wanted:
            raise ValueError(f"all_to_all: rank {self.rank()} wants {wanted} values, but {counts.tolist()} were sent to it")
        for output, part in zip(output_tensors, received.split(wanted)):
            _write(output, part, input_tensors[0].dtype)
        return _done(output_tensors)

    # ---- between two ranks ----

    @_limited
    def send(self, tensors: List[torch.Tensor], dst: int, tag: int = 0) -> Any:
        return self._messages.send(_only(tensors), self._global(dst), tag) or _done(tensors)

    @_limited
    def recv(self, tensors: List[torch.Tensor], src: int, tag: int = 0) -> Any:
        return self._messages.receive(_only(tensors), self._global(src), tag) or _done(tensors)

    def recv_anysource(self, tensors: List[torch.Tensor], tag: int = 0) -> Any:
        raise NotImplementedError(f"the backend {NAME} has no recv from any rank; say from which")


def _only(tensors: List[torch.Tensor]) -> torch.Tensor:
    if len(tensors) != 1:
        raise ValueError(f"a message of {len(tensors)} tensors: one at a time is sent")
    return tensors[0]


def _goes_on(options: Any) -> bool:
    """Returns whether the caller does something else meanwhile."""
    return getattr(options, "asyncOp", False)


def _in_place(tensor: torch.Tensor, operation: Callable[[torch.Tensor], Any]) -> None:
    detached = tensor.detach()
    memory = detached.resolve_conj().resolve_neg().contiguous()  # itself, where it is so
    operation(memory)
    if memory is not detached:
        detached.copy_(memory)


def _demand_all_devices(group: dist.ProcessGroup) -> None:
    """Raises ValueError if another backend was asked for too, for the tensors of other devices: torch has left it out."""
    asked = str(dist.distributed_c10d._world.pg_backend_config.get(group) or "")
    others = sorted({part.partition(":")[2] for part in asked.split(",")} - {NAME, ""})
    if others:
        raise ValueError(
            f'a group of the backends "{asked}": {NAME} serves all devices; write backend="{NAME}", or make a second group with '
            f'new_group(backend="{others[0]}")'
        )


def _create(options: Any, *_: Any) -> HvdProcessGroup:
    """Makes a group: torch calls this for init_process_group and new_group, on the ranks of the group."""
    basics.init()
    rank, size = options.group_rank, options.group_size
    ranks = [int(r) for r in options.global_ranks_in_group]
    if not ranks:  # the default group; no other is there yet, or any more
        ranks = list(range(size))
        _sets_with_group.clear()
    if ranks != sorted(ranks):
        raise ValueError(f"a group of ranks {ranks}: the backend {NAME} has the ranks of a group in ascending order")
    if ranks[-1] >= basics.size():
        raise ValueError(f"a group of ranks {ranks}, but hvdrun has started {basics.size()} ranks")
    if ranks[rank] != basics.rank():
        raise ValueError(
            f"torch.distributed calls this process rank {ranks[rank]}, hvdrun calls it {basics.rank()}; leave rank and "
            "world_size out of init_process_group, or take them from RANK and WORLD_SIZE"
        )
    if size == basics.size():
        return HvdProcessGroup(options, global_process_set)
    entry = _limits.begin(f"new_group of the ranks {ranks}", _seconds_of(options.timeout) or _DEFAULT_TIMEOUT_S)
    try:
        process_set = add_by_members(ranks)
    except HorovodInternalError as error:
        raise entry.end(error) from error
    entry.end(None)
    return HvdProcessGroup(options, process_set)


dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _with_hooks_of_python(register: _T) -> _T:
    """Returns DistributedDataParallel's function for the hooks that torch has built in, with FP16_COMPRESS done by torch's own
    hook of the same name in Python. The one in C++ demands of a future what those that Python makes never have: a value that is
    a list of tensors of C++."""

    @functools.wraps(register)
    def registered(self: Any, comm_hook_type: Any) -> None:
        if isinstance(self.process_group, HvdProcessGroup) and comm_hook_type == dist.BuiltinCommHookType.FP16_COMPRESS:
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

            self.register_comm_hook(self.process_group, fp16_compress_hook)
        else:
            register(self, comm_hook_type)

    return registered


_DDP = torch.nn.parallel.DistributedDataParallel
if hasattr(_DDP, "_register_builtin_comm_hook"):
    _DDP._register_builtin_comm_hook = _with_hooks_of_python(_DDP._register_builtin_comm_hook)
