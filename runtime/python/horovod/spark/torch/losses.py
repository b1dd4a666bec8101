"""The loss and the metrics of a batch, over all outputs of the model. Needs no Spark."""

import inspect
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

Functions = Sequence[Callable[..., torch.Tensor]]


def losses_of(plan: Any) -> List[Callable[..., torch.Tensor]]:
    """The losses of a plan, made anew where it has functions that make them.

    Such a function gets, of the plan's fields and of the numbers of rows, what it names; or all, where it takes any name."""
    validation = plan.data.validation
    known = {**vars(plan), "train_rows": plan.data.train.rows, "val_rows": validation.rows if validation is not None else 0}
    made = []
    for make in plan.loss_constructors:
        named = inspect.signature(make).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in named.values())
        made.append(make(**(known if takes_any else {name: known[name] for name in named if name in known})))
    return made or list(plan.losses)


def for_each(functions: Functions, outputs: Sequence[Any]) -> Functions:
    """One function for all outputs, or one for each."""
    return list(functions) * len(outputs) if len(functions) == 1 else functions


def total_loss(
    outputs: Sequence[torch.Tensor],
    labels: Sequence[torch.Tensor],
    factors: Sequence[float],
    functions: Functions,
    sample_weights: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """The weighted sum of the outputs' losses.

    With weights of the rows, a loss gives one value a row (reduction="none"), and the mean of value times weight counts: so
    a row counts alike in whatever batch it is.
    """
    losses = []
    for output, label, function, factor in zip(outputs, labels, for_each(functions, outputs), factors):
        if sample_weights is None:
            value = function(output, label)
        else:
            value = (_by_row(function, output, label) * sample_weights).mean()
        losses.append(value * factor)
    return sum(losses)


def _by_row(function: Callable[..., torch.Tensor], output: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    if isinstance(function, torch.nn.Module) and not _takes_reduction(function.forward):
        if not hasattr(function, "reduction"):
            raise ValueError(
                f"sample_weight_col: the loss {type(function).__name__} has neither an attribute nor an argument `reduction`, so "
                "it cannot give one value for each row"
            )
        before, function.reduction = function.reduction, "none"
        try:
            value = function(output, label)
        finally:
            function.reduction = before
    else:
        value = function(output, label, reduction="none")
    if value.numel() % max(len(label), 1):
        raise ValueError(f"sample_weight_col: the loss gives {list(value.shape)} for {len(label)} rows, not a value for each")
    return value.reshape(len(label), -1).mean(1)


def _takes_reduction(function: Callable[..., Any]) -> bool:
    return "reduction" in inspect.signature(function).parameters


class Sums:
    """Loss and metrics of many batches, as sums on the device: they cost no wait in a step, and one exchange an epoch."""

    def __init__(self, groups: Sequence[Functions], label_cols: Sequence[str], device: torch.device) -> None:
        self._groups = groups
        self._label_cols = list(label_cols)
        self._values = torch.zeros(2 + len(groups) * len(self._label_cols), dtype=torch.float64, device=device)

    @torch.no_grad()
    def add(
        self, loss: torch.Tensor, outputs: Sequence[torch.Tensor], labels: Sequence[torch.Tensor], count: float
    ) -> None:
        """`count`: how much the batch counts."""
        values = [torch.ones((), dtype=torch.float64, device=self._values.device), loss.detach().mean()]
        for group in self._groups:
            of_group = zip(for_each(group, outputs), outputs, labels)
            values += [torch.as_tensor(function(output, label)).float().mean() for function, output, label in of_group]
        self._values += count * torch.stack([value.to(self._values) for value in values])

    def averages(self, all_ranks: Callable[[torch.Tensor], torch.Tensor]) -> Dict[str, Any]:
        """Over all ranks: {"loss": ..., "all_metrics": [{"group_0_<label>": ...}, ...]}."""
        count, *values = all_ranks(self._values).tolist()
        values = [value / count if count else float("nan") for value in values]
        metrics: List[Dict[str, float]] = []
        width = len(self._label_cols)
        for number in range(len(self._groups)):
            of_group = values[1 + number * width : 1 + (number + 1) * width]
            metrics.append({f"group_{number}_{name}": value for name, value in zip(self._label_cols, of_group)})
        return {"loss": values[0], "all_metrics": metrics}
