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
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from horovod.common import _lib, _wait, basics
from horovod.torch import _sparse
from horovod.torch._collection import Collection, NodeHook, add_hook
from horovod.torch._device import follow
from horovod.torch._gradients import Gradient, GradientGroup, Settings, begin, cast_back, is_zeros

TOO_OFTEN = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
    "backward_passes_per_step to accumulate gradients locally."
)

# A weak reference to the hook of each parameter that has one.
_HOOKS: Any = WeakTensorKeyDictionary()


def _hook_of(gradient: Gradient) -> Callable[[torch.Tensor], None]:
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
                begin(common)
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


def _watch_for_zeros(p: torch.Tensor, gradient: Gradient) -> NodeHook:
    """Calls note_zeros() from now on before the parameter's gradient is added to. Returns what removes it."""
    common, reference = gradient.common, weakref.ref(gradient)  # the gradient itself has the parameter

    def note(_: torch.Tensor) -> None:
        if common.reduced and (found := reference()) is not None:
            found.note_zeros()

    return NodeHook(p, note, is_before=True)


class Reducer:
    """Reducer reduces the gradients of an optimizer's parameters. Thread: the one that makes the step. torch also runs
    the hooks of a GPU's parameters in one thread for each GPU."""

    def __init__(self, settings: Settings, add_new: Callable[[], None]) -> None:
        """`add_new` adds parameters that were added since; its object is not kept alive."""
        self.settings = settings
        self.common = Collection(weakref.ref(self))
        self.gradients: Dict[torch.Tensor, Gradient] = {}
        self._add_new = weakref.WeakMethod(add_new)
        self._versions: List[Tuple[Gradient, torch.Tensor, int]] = []
        self._groups: List[GradientGroup] = []
        self._handles: List[_lib.HandleArray] = []  # of gradients in groups, group by group
        self._earlier: List[_lib.HandleArray] = []  # of batches in flight that have been replaced
        self._hooks: List[Any] = []
        self._seen_ended = _Ended.count
        self._is_again = False  # guarded by common.lock
        self._left: Set[Gradient] = set()  # of the backward pass that is ending: those to which others are still to add
        self._plans_of = self._set_of_plans()
        # A parameter outlives this reducer when the script makes another optimizer for it.
        weakref.finalize(self, _end, self.common, self._hooks)

    def add(self, named: Sequence[Tuple[str, torch.Tensor]], groups: Sequence[Sequence[torch.Tensor]] = ()) -> None:
        """Hooks parameters that have no hook yet. Those in `groups` are reduced together, if all are new."""
        # The first layers are registered first, come last out of backward, and are needed first by the next forward.
        new: Dict[torch.Tensor, Gradient] = {}
        for name, p in named:
            if p not in self.gradients and p not in new:
                new[p] = Gradient(p, name, self.settings, self.common, -len(self.gradients) - len(new))
        if not new:
            return
        grouped = [[p for p in group if p in new] for group in groups]
        grouped = [members for members in grouped if len(members) > 1]
        if grouped:
            self._handles.append(_lib.HandleArray(sum(map(len, grouped))))
        index = 0
        for members in grouped:
            self._groups.append(GradientGroup([new[p] for p in members], self._handles[-1].place(index)))
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
        if any(p.grad is not None for p in new):
            self.common.is_synchronized = False  # a backward pass has made gradients that are this rank's alone

    def _hook(self, p: torch.Tensor, gradient: Gradient) -> None:
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

    def start_all(self, is_step: bool = True) -> None:
        """Starts what is not started yet, so that every parameter's gradient is on its way. Not a step: but for those to which
        backward passes are still to add (backward_passes_per_step), as where losses are of different layers."""
        add_new = self._add_new()
        if add_new is not None:
            add_new()
        try:
            self.start_missing(is_step)
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
        left, self._left = self._left, set()
        self.common.is_synchronized = not left
        self.common.is_by_user = False
        if self.settings.op != _lib.AVERAGE:
            present = [(gradient, p.grad) for p, gradient in self.gradients.items() if p.grad is not None and gradient not in left]
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

    def start_missing(self, is_step: bool) -> None:
        """Starts the gradients that backward did not start; a missing one counts as zeros."""
        self._left = set()
        for p, gradient in self.gradients.items():
            if gradient.grad is not None:
                continue
            if not is_step and gradient.group is None and 0 < gradient.passes_left < self.settings.passes:
                self._left.add(gradient)
                continue
            grad = p.grad
            if self.common.reduced and gradient.is_reduced(grad) and not is_zeros(grad):
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
                cast_back(casts, streams)
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
            if gradient not in self._left:
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

    def count_anew(self) -> None:
        """Gradients of fewer passes than backward_passes_per_step are thrown away. Nothing is in flight."""
        if self.settings.passes > 1:
            self.set_passes(self.settings.passes)

    def set_passes(self, passes: int) -> None:
        self.settings.passes = passes
        for gradient in self.gradients.values():
            gradient.passes_left = passes
