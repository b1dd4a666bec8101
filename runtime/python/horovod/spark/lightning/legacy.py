"""A plain torch.nn.Module as a LightningModule: with an optimizer and losses it has all that Lightning's Trainer needs."""

from typing import Any, Dict, List, Optional, Sequence

import torch

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl  # type: ignore[no-redef]

from horovod.spark.common.util import to_list
from horovod.spark.torch import optimizers
from horovod.spark.torch.batches import Casts, matched
from horovod.spark.torch.losses import total_loss


class ModuleWithLoss(pl.LightningModule):
    """Trains a model by an optimizer on its parameters. The estimator sets `casts` and `reshapes`, which it finds out."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        losses: Sequence[Any],
        loss_weights: Sequence[float],
        feature_cols: Sequence[str],
        label_cols: Sequence[str],
        sample_weight_col: Optional[str],
    ) -> None:
        super().__init__()
        self.model = model
        self._optimizer = optimizer
        self.losses = list(losses)
        self.loss_weights = list(loss_weights)
        self._feature_cols = list(feature_cols)
        self._label_cols = list(label_cols)
        self._sample_weight_col = sample_weight_col
        self.casts = Casts()
        self.reshapes = True  # labels take the shapes of their outputs

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return optimizers.tied(self.model, self._optimizer)

    def training_step(self, batch: Dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = self._step(batch)
        self.log("train_loss", loss.detach(), batch_size=self._rows(batch))
        return loss

    def _rows(self, batch: Dict[str, torch.Tensor]) -> int:
        return len(batch[self._label_cols[0]])

    def _step(self, batch: Dict[str, torch.Tensor]) -> torch.Tensor:
        outputs = self(*_cast(batch, self._feature_cols, self.casts.features))
        labels = _cast(batch, self._label_cols, self.casts.labels)
        weights = batch[self._sample_weight_col].float() if self._sample_weight_col else None
        return self._calculate_loss(*matched(outputs, labels, self.reshapes), weights)

    def _calculate_loss(self, outputs: Any, labels: Any, sample_weights: Optional[torch.Tensor] = None) -> torch.Tensor:
        return total_loss(outputs, labels, self.loss_weights, self.losses, sample_weights)


class ValidatedModuleWithLoss(ModuleWithLoss):
    """A class of its own, because Lightning warns of a validation_step without data."""

    def validation_step(self, batch: Dict[str, torch.Tensor], batch_idx: int) -> None:
        # Callbacks and schedulers of all ranks decide by this number, so it is the same on all of them.
        self.log("val_loss", self._step(batch), batch_size=self._rows(batch), sync_dist=True)


def _cast(batch: Dict[str, torch.Tensor], names: Sequence[str], as_float: bool) -> List[torch.Tensor]:
    return [batch[name].float() if as_float else batch[name] for name in names]


def to_lightning_module(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fns: Any,
    loss_weights: Optional[Sequence[float]],
    feature_cols: Sequence[str],
    label_cols: Sequence[str],
    sample_weights_col: Optional[str],
    validation: Any,
) -> pl.LightningModule:
    """A LightningModule whose steps take a dict with a tensor for each column, and log `train_loss` and `val_loss`."""
    labels = len(label_cols)
    factors = to_list(loss_weights, labels) or [1 / labels] * labels
    kind = ValidatedModuleWithLoss if validation else ModuleWithLoss
    return kind(model, optimizer, to_list(loss_fns, labels), factors, feature_cols, label_cols, sample_weights_col)
