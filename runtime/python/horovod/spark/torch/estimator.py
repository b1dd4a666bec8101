"""TorchEstimator: trains a PyTorch model on a DataFrame. Its model is in model.py."""

import copy
import warnings
from typing import Any, Dict, List, Optional

import torch

from horovod.spark.common.params import EstimatorParams as EstimatorParams  # programs import it from here
from horovod.spark.common.params import Parameter, described
from horovod.spark.common.serialization import packed_parameter as _torch_param_serialize  # noqa: F401
from horovod.spark.torch import optimizers, train, trial
from horovod.spark.torch.checkpointed import CheckpointedEstimator
from horovod.spark.torch.model import TorchModel

__all__ = ["EstimatorParams", "TorchEstimator", "TorchModel"]

_TORCH = (
    Parameter("input_shapes", "shape of each input of the model; a first -1 stands for the rows; required"),
    Parameter("loss_constructors", "functions that make the losses, instead of loss; they get what they name of the plan, "
              "such as model and train_rows"),
    Parameter("train_minibatch_fn", "a step of your own: (model, optimizer, transform_outputs, loss_fn, inputs, labels, "
              "sample_weights), and where it takes nine (..., backward_passes_per_step, batch_idx), gives (outputs, loss)"),
)  # fmt: skip


def _listed(value: Any) -> List[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


@described(_TORCH)
class TorchEstimator(CheckpointedEstimator):
    """Trains a PyTorch model on the rows of a DataFrame, on several processes; fit() gives a TorchModel."""

    _kind = "pytorch"

    def __init__(self, **values: Any) -> None:
        if values.get("loss") is not None and values.get("loss_constructors") is not None:
            raise ValueError("TorchEstimator: give loss or loss_constructors, not both")
        if values.get("backward_passes_per_step", 1) < 1:
            raise ValueError("backward_passes_per_step must be > 0")
        super().__init__(**values)

    def getOptimizer(self) -> Optional[torch.optim.Optimizer]:
        """The optimizer, on the parameters of the model."""
        model, optimizer = self.getModel(), self.getOrDefault("optimizer")
        return optimizer if model is None or optimizer is None else optimizers.tied(model, optimizer)

    def _to_saved(self, name: str, value: Any) -> Any:
        return optimizers.saved(self.getModel(), value) if name == "optimizer" else value

    def _from_saved(self, name: str, value: Any) -> Any:
        return optimizers.loaded(value) if name == "optimizer" else value

    def _check_told(self) -> None:
        super()._check_told()
        if self.getOrDefault("optimizer") is None:
            raise ValueError("TorchEstimator: optimizer is required")
        steps, passes = self.getTrainStepsPerEpoch(), self.getBackwardPassesPerStep()
        if steps is not None and steps < passes and self.getTrainMinibatchFn() is None:
            raise ValueError(
                f"TorchEstimator: train_steps_per_epoch={steps} batches are fewer than backward_passes_per_step={passes}, so the "
                "optimizer would not take one step"
            )
        losses = self.getLoss(), self.getLossConstructors()
        if all(losses) or not any(losses):
            raise ValueError("TorchEstimator: give loss or loss_constructors, one of them")
        self._check_lengths()
        shapes = self.getInputShapes()
        if not shapes:
            raise ValueError("TorchEstimator: input_shapes is required, a shape for each input of the model")
        if self.getFeatureCols() and len(shapes) != len(self.getFeatureCols()):
            raise ValueError(f"input_shapes has {len(shapes)} shapes for {len(self.getFeatureCols())} feature columns")
        optimizers.tied(self.getModel(), self.getOrDefault("optimizer"))
        if self.getCallbacks():
            warnings.warn("callbacks do nothing here; a loop of your own is train_minibatch_fn", stacklevel=4)

    def _passes_of_an_epoch(self) -> int:
        """A step that an epoch has begun ends with it. An epoch with a number of steps reads the rows as often as it needs."""
        has_one = self.getTrainStepsPerEpoch() or self.getTrainMinibatchFn() is not None
        return 1 if has_one else self.getBackwardPassesPerStep()

    def _check_lengths(self) -> None:
        """ValueError where a list would leave an output without its loss, factor or metric."""
        labels = len(self.getLabelCols())
        groups = _listed(self.getMetrics())
        groups = groups if groups and isinstance(groups[0], (list, tuple)) else [groups]
        told = [("loss", _listed(self.getLoss())), ("loss_constructors", _listed(self.getLossConstructors())),
                *(("metrics", group) for group in groups)]  # fmt: skip
        for name, values in told:
            if len(values) not in (0, 1, labels):
                raise ValueError(f"TorchEstimator: {name} has {len(values)} functions for {labels} label columns; give one for each")
        if self.getLossWeights() is not None and len(self.getLossWeights()) != labels:
            raise ValueError(f"TorchEstimator: loss_weights has {len(self.getLossWeights())} numbers for {labels} label columns")

    _rank_main = train.main

    def _plan(self, common: Dict[str, Any]) -> train.Plan:
        labels, metrics = common["label_cols"], _listed(self.getMetrics())
        # Both are copied in one call, so the copied optimizer works on the copied model. The caller's own are never
        # changed.
        model, optimizer = copy.deepcopy((self.getModel(), self.getOptimizer()))
        model.cpu()  # the ranks may have no GPU, or another one
        if optimizer.state:
            optimizer.load_state_dict(optimizer.state_dict())  # which follows the parameters
        return train.Plan(
            **common, model=model, optimizer=optimizer, losses=_listed(self.getLoss()),
            loss_constructors=_listed(self.getLossConstructors()),
            loss_weights=self.getLossWeights() or [1 / len(labels)] * len(labels),
            metrics=metrics if not metrics or isinstance(metrics[0], (list, tuple)) else [metrics],
            minibatch=self.getTrainMinibatchFn(), input_shapes=self.getInputShapes(),
            label_shapes=self._shapes_of_labels(), mp_start_method=self.getMpStartMethod(),
            checkpoint_every=self.getCheckpointEvery(),
        )  # fmt: skip

    def _try(self, plan: train.Plan) -> None:
        plan.casts = trial.casts_of(plan, self.getStore())

    def get_model_class(self) -> type:
        return TorchModel
