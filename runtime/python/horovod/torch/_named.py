"""The names that an optimizer's parameters have, in a form that can be pickled with it."""

from typing import Dict, List, Optional

import torch


def names_in_groups(optimizer: torch.optim.Optimizer, names: Dict[torch.Tensor, str]) -> List[List[Optional[str]]]:
    """The name of each parameter, by its place; None where it has none."""
    return [[names.get(p) for p in group["params"]] for group in optimizer.param_groups]


def names_of_groups(optimizer: torch.optim.Optimizer, names: List[List[Optional[str]]]) -> Dict[torch.Tensor, str]:
    """The same back, for the parameters that are in those places now."""
    return {
        p: name
        for group, group_names in zip(optimizer.param_groups, names)
        for p, name in zip(group["params"], group_names)
        if name is not None
    }
