"""TorchEstimator: trains a PyTorch model on a DataFrame. Its model is in model.py."""

import copy
import io
import warnings
from typing import Any, Dict, List, Optional

import torch

from horovod.spark.common import orders
from horovod.spark.common.estimator import HorovodEstimator
from horovod.spark.common.params import EstimatorParams as EstimatorParams  # programs import it from here
from horovod.spark.common.params import Parameter, described
from horovod.spark.common.serialization import packed_parameter as _torch_param_serialize  # noqa: F401
from horovod.spark.torch import optimizers, train, trial
from horovod.spark.torch.model import TorchModel

__all__ = ["EstimatorParams", "TorchEstimator", "TorchModel"]

_TORCH = (
    Parameter("input_shapes", "shape of each input of the model; a first -1 stands for the rows; required"),
    Parameter("loss_constructors", "functions that make the losses, instead of loss; they get the plan as keywords"),
    Parameter("train_minibatch_fn", "a step of your own: (model, optimizer, transform_outputs, loss_fn, inputs, labels, "
              "sample_weights), gives (outputs, loss)"),
)  # fmt: skip


def _listed(value: Any) -> List[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


@described(_TORCH)
class TorchEstimator(HorovodEstimator):
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

    def _check_told(self) -> None:
        super()._check_told()
        if self.getOrDefault("optimizer") is None:
            raise ValueError("TorchEstimator: optimizer is required")
        losses = self.getLoss(), self.getLossConstructors()
        if all(losses) or not any(losses):
            raise ValueError("TorchEstimator: give loss or loss_constructors, one of them")
        shapes = self.getInputShapes()
        if not shapes:
            raise ValueError("TorchEstimator: input_shapes is required, a shape for each input of the model")
        if self.getFeatureCols() and len(shapes) != len(self.getFeatureCols()):
            raise ValueError(f"input_shapes has {len(shapes)} shapes for {len(self.getFeatureCols())} feature columns")
        optimizers.tied(self.getModel(), self.getOrDefault("optimizer"))
        if self.getCallbacks():
            warnings.warn("callbacks do nothing here; a loop of your own is train_minibatch_fn", stacklevel=4)

    def _plan(self, data: Any, run_id: str) -> train.Plan:
        labels = self.getLabelCols()
        names = [column.name for column in data.train.columns]
        features = self._features_of(names)
        weight = self.getSampleWeightCol()
        metrics = _listed(self.getMetrics())
        # Both are copied in one call, so the copied optimizer works on the copied model. The caller's own are never
        # changed.
        model, optimizer = copy.deepcopy((self.getModel(), self.getOptimizer()))
        return train.Plan(
            model=model, optimizer=optimizer, losses=_listed(self.getLoss()),
            loss_constructors=_listed(self.getLossConstructors()),
            loss_weights=self.getLossWeights() or [1 / len(labels)] * len(labels),
            metrics=metrics if not metrics or isinstance(metrics[0], (list, tuple)) else [metrics],
            compression=self.getGradientCompression(), minibatch=self.getTrainMinibatchFn(), data=data,
            columns=[*features, *labels, *([weight] if weight else [])], feature_cols=features, label_cols=labels,
            input_shapes=self.getInputShapes(), label_shapes=self._shapes_of_labels(), sample_weight_col=weight,
            transform=self._transform_of_batches(), module=self._module_of_data(), run_id=run_id,
            batch_size=self.getBatchSize(), val_batch_size=self.getValBatchSize() or self.getBatchSize(),
            epochs=self.getEpochs(), train_steps=self.getTrainStepsPerEpoch(),
            validation_steps=self.getValidationStepsPerEpoch(), backward_passes=self.getBackwardPassesPerStep(),
            shuffle=self._is_shuffled(), seed=self._seed(), train_ahead=self.getTrainReaderNumWorker(),
            in_memory=self.getInMemoryCacheAll(), use_gpu=self.getUseGpu(),
            mp_start_method=self.getMpStartMethod(), verbose=self.getVerbose(),
            checkpoint_every=self.getCheckpointEvery(), keep_checkpoints=self.getKeepCheckpoints(),
        )  # fmt: skip

    def _shapes_of_labels(self) -> Optional[List[Any]]:
        shapes = self.getLabelShapes()
        if not shapes:
            return None
        return list(shapes) if isinstance(shapes[0], (list, tuple)) else [shapes] * len(self.getLabelCols())

    def _fit_on_prepared_data(self, backend: Any, data: Any, metadata: Dict[str, Any]) -> TorchModel:
        store, run_id = self.getStore(), self._new_run_id(data)
        plan = self._plan(data, run_id)
        plan.casts = trial.casts_of(plan)
        try:
            history = self._run_until_done(lambda: self._attempt(backend, store, plan))
            return self._made_model(plan, history, run_id, metadata)
        finally:
            if not store.saving_runs():
                store.remove(store.get_run_path(run_id))

    def _attempt(self, backend: Any, store: Any, plan: train.Plan) -> Any:
        plan.resume = self._load_checkpoint(plan.run_id) if self._has_checkpoint(plan.run_id) else None
        if plan.resume is not None:
            self._check_continues(plan)
        ticket = orders.send(store, plan.run_id, plan)
        try:
            return backend.run(train.main, args=(store, ticket), env={})[0]
        finally:
            orders.remove(store, ticket)

    def _load_checkpoint(self, run_id: str) -> Optional[Dict[str, Any]]:
        """What the latest holds: tensors and plain values, so that nothing in it is run."""
        return _opened(self._checkpoints(run_id).load())

    def _check_continues(self, plan: train.Plan) -> None:
        state = plan.resume or {}
        plan.seed = state["seed"]  # the order of rows goes on
        if self.getVerbose():
            print(
                f"run {plan.run_id} is continued at epoch {state['epoch']} step {state['step']} of {plan.epochs} epochs"
            )
            if state["identity"] != plan.data.train.identity:
                print(
                    f"run {plan.run_id} had {state['rows']} other rows before; it goes on with {plan.data.train.rows}"
                )

    def _made_model(self, plan: train.Plan, history: Any, run_id: str, metadata: Dict[str, Any]) -> TorchModel:
        which = "best" if plan.data.validation is not None and self.getReturnModel() == "best" else "latest"
        state = _opened(self._checkpoints(run_id).load(which))
        plan.model.cpu().load_state_dict(state["model"])
        plan.optimizer.load_state_dict(state["optimizer"])
        return TorchModel(
            history=history, model=plan.model.eval(), optimizer=plan.optimizer, feature_columns=plan.feature_cols,
            input_shapes=plan.input_shapes, label_columns=plan.label_cols, run_id=run_id, _metadata=metadata,
            loss=self.getLoss(), loss_constructors=self.getLossConstructors(), _casts=plan.casts,
        )  # fmt: skip


def _opened(content: Optional[bytes]) -> Any:
    return None if content is None else torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
