"""Gradients on their way: what DistributedOptimizer does with each one during backward.

A hook on each parameter takes its gradient as soon as backward has made it. Gradients are started together, in one call
of the library, when they are 256 KiB, and what is left when backward ends: a large one at once, small ones without a
wake-up of the library's thread for each, which would take the processor from the backward pass. Where all ranks are on one
host that has less than two cores for each, that thread could only take turns with the backward pass, in step with the other
ranks' threads: gradients in the host's memory are all started at its end then. What the call needs was written down when
a gradient was first seen, all but the memory. All are waited for in one call too, before backward returns: what a script does
with gradients between backward and step, it does with the reduced ones.
"""

import contextlib
import itertools
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from horovod.common import _lib, _wait, basics
from horovod.common.process_sets import ProcessSet, number_of
from horovod.torch import _sparse
from horovod.torch._collection import Collection, NodeHook, add_hook
from horovod.torch._device import Place, follow, place_of
from horovod.torch._handles import Target
from horovod.torch.compression import BF16Compressor, FP16Compressor, NoneCompressor

TOO_OFTEN = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
    "backward_passes_per_step to accumulate gradients locally."
)
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


def _cast_back(
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


# A weak reference to the hook of each parameter that has one.
_HOOKS: Any = WeakTensorKeyDictionary()


_NO_PLAN = (None, None, None, None, None, 0, None)


class _Gradient:
    """_Gradient is one parameter's gradient."""

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
        self.group: Optional[_GradientGroup] = None
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
        _begin(self.common)
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
        if self in self.common.reduced and self.is_reduced(self.p.grad) and _is_zeros(self.p.grad):
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


class _GradientGroup:
    """_GradientGroup holds gradients that are reduced together when the last of them is there."""

    __slots__ = ("members", "arrivals", "first", "group")

    def __init__(self, members: Sequence[_Gradient], first: object) -> None:
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


def _begin(common: Collection) -> None:
    """Is called before a gradient is in flight. The first one makes the plans anew where their process set has changed."""
    if not common.is_in_flight and (owner := common.owner()) is not None:
        owner.follow_set()


def _hook_of(gradient: _Gradient) -> Callable[[torch.Tensor], None]:
    common = gradient.common
    settings = gradient.settings

    def on_gradient(p: torch.Tensor) -> None:
        left = gradient.passes_left - 1
        if left < 0:
            raise AssertionError(TOO_OFTEN)
        if common.is_synchronized:
            # An average is a part of these gradients already. It is the same on all ranks, so averaging again leaves it
            # unchanged, and adds the average of the new part.
            owner = common.owner() if settings.op == _lib.AVERAGE else None
            if owner is not None:
                owner.set_again(True)
            common.is_synchronized = False
        gradient.passes_left = left
        if left == 0:
            hooks = getattr(p, "_post_accumulate_grad_hooks", None)
            if hooks is None or len(hooks) == 1 or next(reversed(hooks)) == gradient.hook_number:
                gradient.start(p.grad)
            else:
                # A hook of the script's comes after this one, and may change the gradient. So the step starts it, or the
                # end of the backward pass.
                _begin(common)
                common.is_in_flight = True
                common.enter_backward()

    def on_gradient_to_reduce_once(p: torch.Tensor) -> None:
        if common.reduced:
            gradient.begin_again(p.grad)
        on_gradient(p)

    return on_gradient if settings.op == _lib.AVERAGE else on_gradient_to_reduce_once


class _Ended:
    """_Ended counts the reducers that have ended: each may have left a parameter without a hook that an earlier one had."""

    count = 0


def _end(common: Collection, hooks: List[Any]) -> None:
    _Ended.count += 1
    common.forget_waiting()
    for hook in hooks:
        hook.remove()


def _watch_for_zeros(p: torch.Tensor, gradient: _Gradient) -> NodeHook:
    """Calls note_zeros() from now on before the parameter's gradient is added to. Returns what removes it."""
    common, reference = gradient.common, weakref.ref(gradient)  # the gradient itself has the parameter

    def note(_: torch.Tensor) -> None:
        if common.reduced and (found := reference()) is not None:
            found.note_zeros()

    return NodeHook(p, note, is_before=True)


def _is_zeros(grad: torch.Tensor) -> bool:
    return not grad.any() if grad.layout is torch.strided else grad._nnz() == 0


class Reducer:
    """Reducer reduces the gradients of an optimizer's parameters. Thread: the one that makes the step. torch also runs
    the hooks of a GPU's parameters in one thread for each GPU."""

    def __init__(self, settings: Settings, add_new: Callable[[], None]) -> None:
        """`add_new` adds parameters that were added since; its object is not kept alive."""
        self.settings = settings
        self.common = Collection(weakref.ref(self))
        self.gradients: Dict[torch.Tensor, _Gradient] = {}
        self._add_new = weakref.WeakMethod(add_new)
        self._versions: List[Tuple[_Gradient, torch.Tensor, int]] = []
        self._groups: List[_GradientGroup] = []
        self._handles: List[_lib.HandleArray] = []  # of gradients in groups, group by group
        self._earlier: List[_lib.HandleArray] = []  # of batches in flight that have been replaced
        self._hooks: List[Any] = []
        self._seen_ended = _Ended.count
        self._is_again = False  # guarded by common.lock
        self._plans_of = self._set_of_plans()
        # A parameter outlives this reducer when the script makes another optimizer for it.
        weakref.finalize(self, _end, self.common, self._hooks)

    def add(self, named: Sequence[Tuple[str, torch.Tensor]], groups: Sequence[Sequence[torch.Tensor]] = ()) -> None:
        """Hooks parameters that have no hook yet. Those in `groups` are reduced together, if all are new."""
        # The first layers are registered first, come last out of backward, and are needed first by the next forward.
        new: Dict[torch.Tensor, _Gradient] = {}
        for name, p in named:
            if p not in self.gradients and p not in new:
                new[p] = _Gradient(p, name, self.settings, self.common, -len(self.gradients) - len(new))
        if not new:
            return
        grouped = [[p for p in group if p in new] for group in groups]
        grouped = [members for members in grouped if len(members) > 1]
        if grouped:
            self._handles.append(_lib.HandleArray(sum(map(len, grouped))))
        index = 0
        for members in grouped:
            self._groups.append(_GradientGroup([new[p] for p in members], self._handles[-1].place(index)))
            index += len(members)
            for p in members:
                new[p].group = self._groups[-1]
        self._grow_batch(len(self.gradients) + len(new))
        for p, gradient in new.items():
            gradient.set_again(self._is_again)
            self.gradients[p] = gradient
            self._hook(p, gradient)
            if self.settings.op != _lib.AVERAGE:
                self._hooks.append(_watch_for_zeros(p, gradient))

    def _hook(self, p: torch.Tensor, gradient: _Gradient) -> None:
        # Two optimizers of one parameter would both reduce its gradient, at once. The newest takes over; the other one
        # finds the gradient in its step.
        if p in _HOOKS and (earlier := _HOOKS[p]()) is not None:
            earlier.remove()
        self._hooks.append(add_hook(p, _hook_of(gradient)))
        gradient.hook_number = getattr(self._hooks[-1], "id", None)
        _HOOKS[p] = weakref.ref(self._hooks[-1])

    def hook_again(self) -> None:
        """Takes back the parameters that a later optimizer had taken over and that is gone."""
        if self._seen_ended == _Ended.count:
            return
        self._seen_ended = _Ended.count
        for p, gradient in self.gradients.items():
            if p not in _HOOKS or _HOOKS[p]() is None:
                self._hook(p, gradient)

    def _grow_batch(self, capacity: int) -> None:
        common = self.common
        if common.is_in_flight:
            # Parameters may be added between backward and step; operations in flight keep their handles.
            common.start_waiting(_lib.GOES_ON)
            self._earlier.append(common.batch.handles)
        common.batch = _lib.Batch(capacity)

    def start_all(self) -> None:
        """Starts what is not started yet, so that every parameter's gradient is on its way."""
        add_new = self._add_new()
        if add_new is not None:
            add_new()
        try:
            self.start_missing()
        except BaseException:
            # No operation may use memory any more. The first error says more than those that follow.
            with contextlib.suppress(Exception):
                self.finish()
            raise

    def _set_of_plans(self) -> Tuple[int, Any]:
        """Returns what tells when the plans' number of the process set is another set's: it is removed and added again, or the
        job was left."""
        return basics.generation, self.settings.process_set.process_set_id

    def follow_set(self) -> None:
        """Makes plans anew where the process set has another number by now. Nothing is in flight. Thread: any."""
        if self._plans_of != self._set_of_plans():
            with self.common.lock:  # who comes second waits until all are forgotten
                if self._plans_of != self._set_of_plans():
                    self._forget_plans()
                    self._plans_of = self._set_of_plans()

    def start_over(self) -> None:
        """A step, or zero_grad, has come: what backward makes from now on is new."""
        if not self.common.is_in_flight:
            self.follow_set()
        self.common.is_synchronized = False
        if self.common.reduced:
            self.common.reduced = {}
        if self._is_again:
            self.set_again(False)

    def set_again(self, is_again: bool) -> None:
        """Gives the reductions the names of those that are the first before a step, or of those that follow them. Ranks with
        another number of backward passes wait for each other then, and are told, where their sums would be mixed.
        Thread: any."""
        with self.common.lock:
            if is_again == self._is_again:
                return
            for gradient in self.gradients.values():
                gradient.set_again(is_again)
            for group in self._groups:
                group.group = None  # made of the members' plans
            self._is_again = is_again

    def complete(self) -> None:
        """Waits for what start_all() has started: all gradients are reduced then."""
        self.finish()
        self.common.is_synchronized = True
        self.common.is_by_user = False
        if self.settings.op != _lib.AVERAGE:
            present = [(gradient, p.grad) for p, gradient in self.gradients.items() if p.grad is not None]
            self.common.reduced = {gradient: weakref.ref(grad) for gradient, grad in present}

    def note_versions(self) -> None:
        """Notes versions when a backward pass within another one has ended: gradients stay in flight, and nobody may
        write them."""
        self._versions = [
            (gradient, gradient.grad, gradient.grad._version)
            for gradient in self.gradients.values()
            if isinstance(gradient.grad, torch.Tensor)
        ]

    def _check_versions(self) -> Optional[BaseException]:
        """Returns the error for a gradient that was written in flight: ranks may have different ones then."""
        versions, self._versions = self._versions, []
        written = [gradient.name for gradient, grad, version in versions if grad._version != version]
        if not written:
            return None
        return RuntimeError(
            f"the gradient of {written[0]} was changed while it was being reduced; call optimizer.synchronize() after "
            "backward() and before anything that changes gradients (clipping, GradScaler.unscale_), or use "
            "checkpoint(use_reentrant=False), with which backward() itself completes the gradients"
        )

    def start_missing(self) -> None:
        """Starts the gradients that backward did not start; a missing one counts as zeros."""
        for p, gradient in self.gradients.items():
            if gradient.grad is not None:
                continue
            grad = p.grad
            if self.common.reduced and gradient.is_reduced(grad) and not _is_zeros(grad):
                continue  # of an earlier backward pass, which this one has added nothing to
            if grad is None:
                if not p.requires_grad and gradient.group is None:
                    continue  # frozen since
                grad = _sparse.zeros_like(p) if gradient.was_sparse else torch.zeros_like(p, requires_grad=False)
                if p.requires_grad:
                    p.grad = grad
            gradient.start(grad)

    def finish(self) -> None:
        """Waits for all reductions, even when one fails or Ctrl-C comes, so that none still works on memory."""
        common = self.common
        failure: Optional[BaseException] = common.failure or self._check_versions()
        if common.is_in_flight:
            if failure is None:
                try:
                    common.start_waiting(_lib.WAITS_NEXT)
                except Exception as error:
                    failure = error
            common.forget_waiting()
            batches = [common.batch.handles] if common.batch.addresses else []
            for handles in (*batches, *self._handles, *self._earlier):
                try:
                    _wait.finish(handles)
                except BaseException as error:
                    failure = failure or error
            self._earlier = []
        casts, common.casts = common.casts, []
        if failure is None:
            # Each operation was started on the stream that its hook had, which need not be the step's.
            followed = {place: follow(place) for place in common.places}
            streams = {place: stream for place, stream in followed.items() if stream is not None}
            if casts:
                _cast_back(casts, streams)
        special, common.special = common.special, []
        for gradient in special:
            try:
                if failure is None or gradient.was_sparse:
                    gradient.finish()
            except Exception as error:
                failure = failure or error
        if common.start_bytes is None and common.is_in_flight and failure is None:
            common.decide_start()
        common.clear()
        for gradient in self.gradients.values():
            gradient.forget()
        for group in self._groups:
            group.start_over()
        if failure is not None:
            self._forget_plans()  # after a failure and a new start, process sets have other numbers
            raise failure

    def _forget_plans(self) -> None:
        self.common.start_bytes = None
        self.set_again(False)
        for gradient in self.gradients.values():
            gradient.forget_plans()
        for group in self._groups:
            group.group = None

    def set_passes(self, passes: int) -> None:
        self.settings.passes = passes
        for gradient in self.gradients.values():
            gradient.passes_left = passes
