"""One gradient on its way, or several that are reduced together; _reducer.py has those of an optimizer.

What the call of the library needs is written down when a gradient is first seen, all but the memory.
"""

import itertools
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import torch

from horovod.common import _lib
from horovod.common.process_sets import ProcessSet, number_of
from horovod.torch import _sparse
from horovod.torch._collection import Collection
from horovod.torch._device import Place, place_of
from horovod.torch._handles import Target
from horovod.torch.compression import BF16Compressor, FP16Compressor, NoneCompressor

_REDUCED_ALREADY = (
    "Gradients were computed again before step() or zero_grad(), and the ones before are reduced already. Only averages can be "
    "added to. If a step was left out, call optimizer.zero_grad() before the next backward(). To add gradients up with another "
    "op, increase backward_passes_per_step."
)


class Settings:
    """Settings are what DistributedOptimizer was asked for. All but backward_passes_per_step are constant after
    construction."""

    def __init__(
        self,
        compression: Any,
        passes: int,
        op: int,
        predivide_factor: float,
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        self.compression = compression
        self.is_compression_ours = any(compression is ours for ours in _CASTS)
        self.op = op
        # The library divides by the number of ranks itself; a predivide factor moves part of that before the sum.
        self.prescale = 1.0 / predivide_factor
        self.postscale = predivide_factor
        self.passes = passes
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set


# The memory formats in which a gradient is reduced in its own memory, by its number of dimensions. Each has its
# dimensions in the order of the memory.
_FORMATS = {
    4: (torch.channels_last, (0, 2, 3, 1)),
    5: (torch.channels_last_3d, (0, 2, 3, 4, 1)),
}


def _format_of(p: torch.Tensor) -> Any:
    """Returns the memory format of a parameter. None: its gradients are sent contiguous.

    It is the parameter's, which a script gives it, and not the gradient's, which may be what came out of one rank's backward.
    """
    if p.layout is torch.strided and not p.is_contiguous() and p.dim() in _FORMATS:
        memory_format, _ = _FORMATS[p.dim()]
        if p.is_contiguous(memory_format=memory_format):
            return memory_format
    return None


def _shape_that_travels(shape: torch.Size, memory_format: Any) -> Sequence[int]:
    """Returns the shape that ranks compare, in the order of the memory. A memory format of its own adds a 1 at the end:
    ranks that disagree about the format get an error then, and no elements are mixed.

    What is contiguous and could be taken for that gets a 1 more too; then it has two, and what has a format of its own has
    more than one channel before its 1, else it were contiguous.
    """
    if memory_format is not None or (len(shape) in (5, 6) and shape[-1] == 1):
        return (*shape, 1)
    return shape


# The type to which each of these casts floating-point gradients, if to any. The library works in the memory of what it gives,
# and all are cast back in one call. A script's own compression may change each gradient, so it is asked for each.
_CASTS = {NoneCompressor: None, FP16Compressor: torch.float16, BF16Compressor: torch.bfloat16}

_foreach_copy = getattr(torch, "_foreach_copy_", None)  # since torch 2.1


def cast_back(
    casts: Sequence[Tuple[torch.Tensor, torch.Tensor, Optional[Place]]], streams: Dict[Place, torch.cuda.Stream]
) -> None:
    """Writes reduced tensors into their gradients. `streams`: the current one of each place that has another, whose work torch
    must wait for before it uses the tensors' memory again."""
    grads, reduced = [grad for grad, _, _ in casts], [cast for _, cast, _ in casts]
    with torch.no_grad():
        if _foreach_copy is not None:
            _foreach_copy(grads, reduced)
        else:
            for grad, cast in zip(grads, reduced):
                grad.copy_(cast)
    for _, cast, place in casts if streams else ():
        if place in streams:
            cast.record_stream(streams[place])


_NO_PLAN = (None, None, None, None, None, 0, None)


class Gradient:
    """Gradient is one parameter's gradient."""

    __slots__ = (
        "p", "name", "settings", "common", "priority", "passes_left", "group",
        "plan", "dtype", "device", "shape", "format", "size_bytes", "cast", "grad", "finish", "was_sparse", "is_again", "other",
        "hook_number", "__weakref__",
    )  # fmt: skip

    def __init__(self, p: torch.Tensor, name: str, settings: Settings, common: Collection, priority: int) -> None:
        self.p = p
        self.name = name
        self.settings = settings
        self.common = common
        self.priority = priority
        self.passes_left = settings.passes
        self.group: Optional[GradientGroup] = None
        self.hook_number: Optional[int] = None  # torch's number of its hook
        # The plan for reducing gradients of this type and shape, in memory that the library can use.
        self.plan: Optional[_lib.Plan] = None
        self.dtype: Any = None
        self.device: Any = None
        self.shape: Any = None
        self.format: Any = None
        self.size_bytes = 0
        self.cast: Any = None  # the type in which such gradients travel; None: their own
        # Whether the reductions have the name of those that follow another one before the step; and what is above of the
        # plan with the other name.
        self.is_again = False
        self.other: Any = _NO_PLAN
        # These are set while the operation is in flight: the owner of its memory, and the work to do at its end.
        self.grad: Any = None
        self.finish: Optional[Callable[[], None]] = None
        self.was_sparse = False

    @property
    def operation(self) -> str:
        return self.name + ".again" if self.is_again else self.name

    def set_again(self, is_again: bool) -> None:
        """Takes the plan with the other name, where this is another one."""
        if is_again != self.is_again:
            own = (self.plan, self.dtype, self.device, self.shape, self.format, self.size_bytes, self.cast)
            self.plan, self.dtype, self.device, self.shape, self.format, self.size_bytes, self.cast = self.other
            self.other, self.is_again = own, is_again

    def forget_plans(self) -> None:
        self.dtype, self.other = None, _NO_PLAN

    def plan_for(self, dtype: int, shape: Sequence[int]) -> _lib.Plan:
        settings = self.settings
        return _lib.Plan(
            _lib.ALLREDUCE, dtype, shape, "allreduce." + self.operation, settings.op, 0, settings.prescale,
            settings.postscale, number_of(settings.process_set), (), self.priority,
        )  # fmt: skip

    def _work_at(self, place: Place) -> None:
        self.plan.work_at(*place)
        self.common.places.add(place)

    def start(self, grad: torch.Tensor) -> None:
        """Reduces `grad`, together with its group if it is the group's last one."""
        begin(self.common)
        if (
            grad.dtype is self.dtype
            and grad.device == self.device
            and grad.shape == self.shape
            and grad.layout is torch.strided
            and (grad.is_contiguous() if self.format is None else grad.is_contiguous(memory_format=self.format))
        ):
            place = None if grad.is_cpu else place_of(grad)
            if place is not None:
                self._work_at(place)
            held = grad
            if self.cast is not None:
                held = grad.detach().to(self.cast)
                self.common.casts.append((grad, held, place))
            memory = self.plan.memory
            memory[0] = memory[1] = held.data_ptr()
            self.grad = held
        elif not self._prepare(grad):
            return
        group = self.group
        if group is None:
            self.common.collect(self.plan.address, self.size_bytes, grad.is_cpu)
            return
        self.common.is_in_flight = True
        self.common.enter_backward()
        status = group.enqueue() if group.is_complete_by_one_more() else 0
        if status:
            self.grad = None
            raise _lib.error_of(status)

    def _prepare(self, grad: torch.Tensor) -> bool:
        """Sets the memory of a gradient that is new, or compressed, or in memory that the library cannot use. Returns
        False for a sparse one, which is on its way already."""
        settings = self.settings
        self.was_sparse = grad.layout is not torch.strided
        if self.was_sparse and not settings.sparse_as_dense:
            if self.group is not None:
                raise ValueError(
                    f"the gradient of {self.name} is sparse and cannot be in a group; leave its parameter out of "
                    "groups=[...], or use sparse_as_dense=True"
                )
            self._start_sparse(grad)
            return False
        dense = grad.to_dense() if self.was_sparse else grad
        compressed, ctx = settings.compression.compress(dense)
        self.format = _format_of(self.p) if compressed.shape == self.p.shape else None
        whole = compressed if self.format is None else compressed.detach().permute(_FORMATS[compressed.dim()][1])
        target = Target(whole, whole, settings.op)
        self.plan = self.plan_for(target.dtype, _shape_that_travels(target.shape, self.format))
        if target.place is not None:
            self._work_at(target.place)
        memory = self.plan.memory
        memory[0] = memory[1] = target.memory.data_ptr()
        self.size_bytes = target.memory.numel() * target.memory.element_size()
        # A complex gradient may be a conjugated view, which its memory does not show; so each comes here.
        is_in_memory = target.memory is whole and not whole.is_complex()
        is_plain = settings.is_compression_ours and dense is grad and is_in_memory
        cast = _CASTS[settings.compression] if is_plain and compressed is not grad else None
        if is_plain and (compressed is grad or compressed.dtype is cast):
            self.dtype, self.device, self.shape, self.cast = grad.dtype, grad.device, grad.shape, cast
            self.grad = grad if cast is None else compressed
            if cast is not None:
                self.common.casts.append((grad, compressed, target.place))
        else:
            self.dtype = None  # so that the next gradient comes here again
            self.grad = target

            def finish() -> None:
                target.finish()
                self._write_back(grad, settings.compression.decompress(compressed, ctx))

            self.finish = finish
            self.common.special.append(self)
        if self.group is not None:
            self.group.group = None  # made of the members' plans
        return True

    def _write_back(self, grad: torch.Tensor, reduced: torch.Tensor) -> None:
        with torch.no_grad():
            if self.was_sparse:
                self.p.grad = reduced.to_sparse(grad.sparse_dim())
            elif reduced is not grad:
                grad.copy_(reduced)

    def _start_sparse(self, grad: torch.Tensor) -> None:
        settings = self.settings
        scaled = grad if settings.prescale * settings.postscale == 1.0 else grad * settings.prescale * settings.postscale
        result = _sparse.start(scaled, self.operation, settings.op, settings.process_set, settings.compression)
        self.grad = scaled

        def finish() -> None:
            self.p.grad = result()

        self.finish = finish
        self.common.special.append(self)
        self.common.is_in_flight = True
        self.common.enter_backward()

    def is_reduced(self, grad: Optional[torch.Tensor]) -> bool:
        """Returns whether it is the tensor that was reduced since the last step, where none may be reduced twice."""
        reference = self.common.reduced.get(self)
        reduced = None if reference is None else reference()
        if reduced is None:
            return False
        reduced._fix_weakref()  # torch demands it where only its own code had the tensor
        return reduced is grad

    def note_zeros(self) -> None:
        """Is called before backward adds to the gradient. One that was reduced and is zeros now, as model.zero_grad(
        set_to_none=False) leaves it after a step that was skipped, is as good as none."""
        if self in self.common.reduced and self.is_reduced(self.p.grad) and is_zeros(self.p.grad):
            del self.common.reduced[self]

    def begin_again(self, grad: torch.Tensor) -> None:
        """Takes a gradient that comes after a reduced one as a new one. AssertionError where backward has added it to that
        one, which cannot be told from a new one where torch adds out of place."""
        adds_out_of_place = torch.is_grad_enabled() or (self.was_sparse and grad.layout is torch.strided)
        if self.is_reduced(grad) or (adds_out_of_place and self in self.common.reduced):
            raise AssertionError(_REDUCED_ALREADY)
        self.common.reduced.pop(self, None)

    def forget(self) -> None:
        """Notes that it is no longer in flight."""
        self.grad = None
        self.finish = None
        self.passes_left = self.settings.passes


class GradientGroup:
    """GradientGroup holds gradients that are reduced together when the last of them is there."""

    __slots__ = ("members", "arrivals", "first", "group")

    def __init__(self, members: Sequence[Gradient], first: object) -> None:
        self.members = list(members)
        self.first = first  # where the handles go
        self.group: Optional[_lib.Group] = None
        self.start_over()

    def is_complete_by_one_more(self) -> bool:
        """Counts one more gradient, and returns whether it is the last one. Thread: any; only one of them gets True,
        because no other thread can interrupt a step of the counter."""
        return next(self.arrivals) == len(self.members)

    def enqueue(self) -> int:
        """Starts it; returns the status."""
        if self.group is None:
            self.group = _lib.Group([member.plan for member in self.members], self.first)
        return self.group.enqueue()

    def start_over(self) -> None:
        self.arrivals = itertools.count(1)


def begin(common: Collection) -> None:
    """Is called before a gradient is in flight. The first one makes the plans anew where their process set has changed."""
    if not common.is_in_flight and (owner := common.owner()) is not None:
        owner.follow_set()


def is_zeros(grad: torch.Tensor) -> bool:
    return not grad.any() if grad.layout is torch.strided else grad._nnz() == 0
