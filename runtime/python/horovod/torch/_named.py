"""The names that an optimizer's parameters have, and copies and pickles of an optimizer that has them."""

import contextlib
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch


def _names_in_groups(optimizer: torch.optim.Optimizer, names: Dict[torch.Tensor, str]) -> List[List[Optional[str]]]:
    """The name of each parameter, by its place; None where it has none. A form that can be pickled."""
    return [[names.get(p) for p in group["params"]] for group in optimizer.param_groups]


def _names_of_groups(optimizer: torch.optim.Optimizer, names: List[List[Optional[str]]]) -> Dict[torch.Tensor, str]:
    """The same back, for the parameters that are in those places now."""
    return {
        p: name
        for group, group_names in zip(optimizer.param_groups, names)
        for p, name in zip(group["params"], group_names)
        if name is not None
    }


_is_out_of_compiled_code = False


def stay_out_of_compiled_code() -> None:
    """Has torch.compile break its graph at this package, in a compiled function that makes the whole step: what is done here
    is done in each step, with memory that only this step has. Whoever makes an optimizer has loaded the compiler already."""
    global _is_out_of_compiled_code
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is not None and not _is_out_of_compiled_code:
        rules.add("horovod")
        _is_out_of_compiled_code = True


class NamedMixin:
    """What the optimizers that DistributedOptimizer makes have in common: a copy is set up anew, for its own parameters."""

    _hvd_names: Dict[torch.Tensor, str]

    def _hvd_setup(self, names: Dict[torch.Tensor, str], *asked: Any) -> None:
        raise NotImplementedError

    def _hvd_asked(self) -> Tuple[Any, ...]:
        """What _hvd_setup was given beside the names."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _hvd_shared(self) -> Iterator[None]:
        """Around a load_state_dict: the groups and the state stay the objects that they are, which the wrapped optimizer and
        its schedulers have too."""
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

    def __getstate__(self) -> Dict[str, Any]:
        state = dict(super().__getstate__())
        state["_hvd"] = (_names_in_groups(self, self._hvd_names), *self._hvd_asked())
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        """(load_state_dict comes here too, without the "_hvd" part.)"""
        state = dict(state)
        ours = state.pop("_hvd", None)
        super().__setstate__(state)
        if ours is not None:
            names, *asked = ours
            self._hvd_setup(_names_of_groups(self, names), *asked)
