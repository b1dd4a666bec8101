"""The names of an optimizer's parameters, and how copies and pickles of an optimizer keep them."""

import contextlib
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch


def _names_in_groups(optimizer: torch.optim.Optimizer, names: Dict[torch.Tensor, str]) -> List[List[Optional[str]]]:
    """Returns the name of each parameter, by its place; None where it has none. The form can be pickled."""
    return [[names.get(p) for p in group["params"]] for group in optimizer.param_groups]


def _names_of_groups(optimizer: torch.optim.Optimizer, names: List[List[Optional[str]]]) -> Dict[torch.Tensor, str]:
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

    def __getstate__(self) -> Dict[str, Any]:
        state = dict(super().__getstate__())
        state["_hvd"] = (_names_in_groups(self, self._hvd_names), *self._hvd_asked())
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        """Also load_state_dict comes here, without the "_hvd" part."""
        state = dict(state)
        ours = state.pop("_hvd", None)
        super().__setstate__(state)
        if ours is not None:
            names, *asked = ours
            self._hvd_setup(_names_of_groups(self, names), *asked)
