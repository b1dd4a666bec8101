"""The names of an optimizer's parameters, and how copies and pickles of an optimizer keep them."""

import contextlib
import sys
import weakref
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from horovod.common import basics
from horovod.common.process_sets import ProcessSet

# The ranks that reduce (0 stands for all of the job), and the name that the script has given.
_Asked = Tuple[Any, str]


class TravellingNames:
    """TravellingNames says under which name a parameter's gradients travel: its own, or with "#2" and so on where another
    parameter had it before. So optimizers of models whose layers have the same names may reduce at the same time.

    It goes by the order in which optimizers are made, which is the same on all ranks, and not by which parameters are
    still there: ranks collect their garbage at different times. A parameter that comes again has the name that it had.
    """

    def __init__(self) -> None:
        self._counts: Dict[_Asked, int] = {}
        self._unnamed = 0  # optimizers with parameters that have no names
        self._kept: Tuple[Dict[_Asked, int], int] = ({}, 0)  # those to which it goes back when the job is left
        self._numbers: Any = WeakTensorKeyDictionary()  # those that each parameter has got

    def name_of(self, p: torch.Tensor, name: str, process_set: ProcessSet) -> str:
        """Returns the name for a parameter that the script has given this one."""
        asked = (process_set.process_set_id and tuple(process_set.ranks), name)
        numbers = self._numbers.setdefault(p, {})
        if asked not in numbers:
            numbers[asked] = self._counts[asked] = self._counts.get(asked, 0) + 1
        return name if numbers[asked] == 1 else f"{name}#{numbers[asked]}"

    def next_unnamed(self) -> int:
        """Returns a number for an optimizer with parameters that have no names, so that two of them can be in flight at once."""
        self._unnamed += 1
        return self._unnamed - 1

    def start_over(self) -> None:
        """Forgets what was counted, because processes that have made other optimizers may be in the next job."""
        counts, self._unnamed = self._kept
        self._counts = dict(counts)
        for numbers in list(self._numbers.values()):
            for asked in [asked for asked, number in numbers.items() if number > self._counts.get(asked, 0)]:
                del numbers[asked]

    @contextlib.contextmanager
    def keep(self) -> Iterator[None]:
        """Keeps what was counted before, also when the job is left: in elastic training, a process that comes anew has made
        the same optimizers before it meets the others. What they have made since, all make anew."""
        before, self._kept = self._kept, (dict(self._counts), self._unnamed)
        try:
            yield
        finally:
            self._kept = before


travelling_names = TravellingNames()
basics.when_left.append(travelling_names.start_over)


def names_in_groups(optimizer: torch.optim.Optimizer, names: Dict[torch.Tensor, str]) -> List[List[Optional[str]]]:
    """Returns the name of each parameter, by its place; None where it has none. The form can be pickled."""
    return [[names.get(p) for p in group["params"]] for group in optimizer.param_groups]


def names_of_groups(optimizer: torch.optim.Optimizer, names: List[List[Optional[str]]]) -> Dict[torch.Tensor, str]:
    """Returns the names for the parameters that are in those places now."""
    return {
        p: name
        for group, group_names in zip(optimizer.param_groups, names)
        for p, name in zip(group["params"], group_names)
        if name is not None
    }


_is_out_of_compiled_code = False


def stay_out_of_compiled_code() -> None:
    """Makes torch.compile break its graph at this package, when a compiled function makes the whole step: what happens
    here happens in each step, with memory of that step. Whoever makes an optimizer has loaded the compiler already."""
    global _is_out_of_compiled_code
    for name in ("trace_rules", "skipfiles"):  # the second before torch 2.3
        add = getattr(sys.modules.get("torch._dynamo." + name), "add", None)
        if add is not None and not _is_out_of_compiled_code:
            add("horovod")
            _is_out_of_compiled_code = True


class NamedMixin:
    """NamedMixin is what all of DistributedOptimizer's optimizers share: a copy is set up again, for its own
    parameters."""

    _hvd_names: Dict[torch.Tensor, str]
    _hvd_wrapped: Optional["weakref.ref[torch.optim.Optimizer]"] = None  # a copy has none

    def _hvd_setup(self, names: Dict[torch.Tensor, str], *asked: Any) -> None:
        raise NotImplementedError

    def _hvd_asked(self) -> Tuple[Any, ...]:
        """Returns what _hvd_setup was given besides the names."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _hvd_shared(self) -> Iterator[None]:
        """Keeps the groups and the state the same objects during a load_state_dict, since the wrapped optimizer and its
        schedulers refer to them."""
        groups, state = self.param_groups, self.state
        yield
        if self.param_groups is not groups:
            groups[:] = self.param_groups
            self.param_groups = groups
        if self.state is not state:
            loaded = dict(self.state)
            state.clear()
            state.update(loaded)
            self.state = state

    def _hvd_note_step(self) -> None:
        """Notes the step for the wrapped optimizer too: a scheduler that was made for that one asks it."""
        wrapped = self._hvd_wrapped and self._hvd_wrapped()
        if wrapped is not None:
            wrapped._opt_called = True

    def __getstate__(self) -> Dict[str, Any]:
        state = dict(super().__getstate__())
        state["_hvd"] = (names_in_groups(self, self._hvd_names), *self._hvd_asked())
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        """Also load_state_dict comes here, without the "_hvd" part."""
        state = dict(state)
        ours = state.pop("_hvd", None)
        super().__setstate__(state)
        if ours is not None:
            names, *asked = ours
            self._hvd_setup(names_of_groups(self, names), *asked)
