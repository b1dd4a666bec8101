"""This is the optimizer that DistributedOptimizer makes for op=hvd.Adasum: each rank makes its own step, and the
changes of all ranks are combined."""

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch

from horovod.common import _lib
from horovod.common.process_sets import ProcessSet
from horovod.torch._allreduce import allreduce_async_
from horovod.torch._handles import synchronize
from horovod.torch._named import NamedMixin, stay_out_of_compiled_code


class AdasumMixin(NamedMixin):
    """AdasumMixin precedes the wrapped optimizer's class among the bases of the class that DistributedOptimizer makes.

    Adasum is of the changes and not of the gradients (Horovod's delta form): an optimizer's step is not linear in the
    gradient, and it is the changes' lengths and directions that tell how much of them to keep. All ranks start a step
    with equal parameters; so they end it with equal ones.
    """

    def _hvd_setup(self, names: Dict[torch.Tensor, str], compression: Any, process_set: ProcessSet) -> None:
        stay_out_of_compiled_code()
        self._hvd_names = names
        self._hvd_compression = compression
        self._hvd_process_set = process_set

    def synchronize(self) -> None:
        """Does nothing: gradients are this rank's own, and can be clipped or looked at before the step at any time."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Raises AssertionError, since the step itself is distributed; but not where one rank trains alone, so that a script
        which does this only there can be tried."""
        if self._hvd_process_set.takes_part() and self._hvd_process_set.size() > 1:
            raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")
        yield

    def _hvd_name(self, group_index: int, index: int, p: torch.Tensor) -> str:
        return "adasum." + self._hvd_names.get(p, f"unnamed.{group_index}.{index}")

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Makes the wrapped optimizer's step on this rank, then sets the parameters to the Adasum of all ranks'
        changes.

        Raises:
            HorovodInternalError: on every rank, when one is gone or ranks disagree; parameters are in no defined state
                then.
        """
        process_set = self._hvd_process_set
        self._hvd_note_step()
        if not process_set.takes_part() or process_set.size() == 1:
            return self._hvd_step_here(closure)
        # All ranks combine the same parameters, with or without a gradient; a missing one counts as a change of zeros.
        parameters = [
            (self._hvd_name(group_index, index, p), p)
            for group_index, group in enumerate(self.param_groups)
            for index, p in enumerate(group["params"])
            if p.requires_grad
        ]
        starts = [p.detach().clone() for _, p in parameters]
        result = self._hvd_step_here(closure)
        pending: List[Tuple[torch.Tensor, torch.Tensor, int, Any]] = []
        try:
            with torch.no_grad():
                for (name, p), start in zip(parameters, starts):
                    compressed, context = self._hvd_compression.compress(p.detach() - start)
                    handle = allreduce_async_(compressed.contiguous(), None, name, _lib.ADASUM, process_set=process_set)
                    pending.append((p, start, handle, context))
        except BaseException:
            for _, _, handle, _ in pending:  # no operation may use memory that is freed
                with contextlib.suppress(Exception):
                    synchronize(handle)
            raise
        self._hvd_finish(pending)
        return result

    # See optimizer.py.
    step.hooked = True

    # A GradScaler leaves it to the step then to leave out a step with infinite gradients. It would call no step else, on the
    # ranks that have such gradients; and the other ranks would wait for them.
    _step_supports_amp_scaling = True

    def _hvd_step_here(self, closure: Optional[Callable[[], Any]]) -> Any:
        """Makes the wrapped optimizer's step on this rank. With a GradScaler it divides gradients by the scale first, and
        changes nothing where one is infinite."""
        step = super().step
        has_own = getattr(super(), "_step_supports_amp_scaling", False) or "_step_supports_amp_scaling" in self.__dict__
        found, scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        if has_own or found is None:
            return step() if closure is None else step(closure)
        if found:
            return None
        if scale is not None:
            self._hvd_unscale(scale)
        self.found_inf = self.grad_scale = None  # the wrapped step must not see them, and the scaler deletes them afterwards
        return step()

    def _hvd_unscale(self, scale: torch.Tensor) -> None:
        inverse = scale.double().reciprocal().float()
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.grad.mul_(inverse.to(p.grad.device))

    def _hvd_finish(self, pending: List[Tuple[torch.Tensor, torch.Tensor, int, Any]]) -> None:
        error = None
        with torch.no_grad():
            for p, start, handle, context in pending:
                try:
                    change = self._hvd_compression.decompress(synchronize(handle), context)
                    p.copy_(start.add_(change))
                except Exception as failure:
                    error = error or failure
        if error is not None:
            raise error

    # How many backward passes come before a step is up to the script: gradients add up on this rank over all of them.
    backward_passes_per_step = 1

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Notes how many backward passes come before a step; nothing depends on it."""
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = passes

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """The wrapped optimizer's load_state_dict."""
        with self._hvd_shared():
            super().load_state_dict(*args, **kwargs)

    def _hvd_asked(self) -> Tuple[Any, ...]:
        return (self._hvd_compression, self._hvd_process_set)
