"""Horovod's estimator for Lightning modules, by name: it is refused, with what to write instead."""

from typing import Any

__all__ = ["TorchEstimator"]


class TorchEstimator:
    """Refused: Lightning's training loop does not run here yet."""

    def __init__(self, *_args: Any, **_values: Any) -> None:
        raise NotImplementedError(
            "horovod.spark.lightning.TorchEstimator is not there: a LightningModule is a torch.nn.Module, so train it with "
            "horovod.spark.torch.TorchEstimator, with its forward(), its optimizer and its loss; what else training_step() "
            "does goes into train_minibatch_fn"
        )
