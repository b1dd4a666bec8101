"""Pieces of the training loop under the names that Horovod has for them, for programs that call them by those names.

Each is a function that gives the piece. The loop itself is train.py, which uses the same losses and optimizers.
"""

from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy
import torch

from horovod.spark.common import constants
from horovod.spark.torch import optimizers
from horovod.spark.torch.losses import for_each, total_loss


class Metric:
    """An average over batches and ranks that is exchanged at each batch."""

    def __init__(self, name: str, hvd: Any) -> None:
        self.name = name
        self.sum = torch.tensor(0.0)
        self.n = torch.tensor(0.0)
        self._hvd = hvd

    def update(self, value: torch.Tensor) -> None:
        self.sum += self._hvd.allreduce(value.detach().cpu(), name=self.name)
        self.n += 1

    @property
    def avg(self) -> torch.Tensor:
        return self.sum / self.n


def _metric_cls() -> type:
    return Metric


def _construct_metric_value_holders_fn() -> Callable[..., List[List[Any]]]:
    def construct(
        make: Callable[..., Any], groups: Sequence[Any], label_columns: Sequence[str], hvd: Any
    ) -> List[List[Any]]:
        return [[make(f"group_{number}_{label}", hvd) for label in label_columns] for number in range(len(groups))]

    return construct


def _update_metrics_fn(groups: Sequence[Any]) -> Callable[..., Any]:
    def update(holders: Sequence[Any], outputs: Sequence[Any], labels: Sequence[Any]) -> Any:
        for group, of_group in zip(groups, holders):
            for holder, function, output, label in zip(of_group, for_each(group, outputs), outputs, labels):
                holder.update(function(output, label))
        return holders

    return update


def _get_metric_avgs_fn() -> Callable[..., List[Dict[str, float]]]:
    return lambda groups: [{metric.name: metric.avg.item() for metric in group} for group in groups]


def _calculate_loss_fn() -> Callable[..., torch.Tensor]:
    return total_loss


def _get_optimizer_with_unscaled_lr_fn() -> Callable[..., torch.optim.Optimizer]:
    def unscaled(hvd: Any, optimizer: Any, make: Any, model: torch.nn.Module) -> torch.optim.Optimizer:
        made = make(model.parameters(), lr=1)
        made.load_state_dict(optimizers.unscaled_state(optimizer, hvd.size()))
        return made

    return unscaled


def _calculate_shuffle_buffer_size_fn() -> Callable[[Any, float, float], int]:
    def calculate(hvd: Any, row_bytes: float, rows: float) -> int:
        """So many rows that a rank's take no more than 1 GiB, and those of the fullest machine no more than the cap."""
        on_fullest = int(hvd.allgather(torch.tensor([hvd.local_size()])).max())
        gigabytes = min(1.0, constants.TOTAL_BUFFER_MEMORY_CAP_GIB / on_fullest)
        return int(min(gigabytes * constants.BYTES_PER_GIB / row_bytes, rows))

    return calculate


def _prepare_np_data_fn() -> Callable[..., Any]:
    def prepare(rows: Any, name: str, metadata: Dict[str, Any]) -> Any:
        """Rows as they are; rows of (count, indices, values, filler) as dense ones."""
        if metadata[name]["intermediate_format"] != constants.CUSTOM_SPARSE:
            return rows
        dense = torch.zeros(len(rows), metadata[name]["shape"])
        for number, row in enumerate(rows):
            places, values = _sparse_parts(row)
            dense[number, places] = values
        return dense

    return prepare


def _sparse_parts(row: Any) -> Tuple[torch.Tensor, torch.Tensor]:
    row = torch.as_tensor(numpy.asarray(row))
    count = int(row[0])
    return row[1 : 1 + count].long(), row[1 + count : 1 + 2 * count].float()
