"""What estimators of PyTorch models do alike, Lightning's too: they read a run's checkpoint, and make the model that fit() gives."""

import io
from typing import Any, Dict, Optional

import torch

from horovod.spark.common.estimator import HorovodEstimator


def opened(content: Optional[bytes]) -> Any:
    """What a checkpoint holds: tensors and plain values, so that nothing in it is run. None stays None."""
    return None if content is None else torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


class CheckpointedEstimator(HorovodEstimator):
    """An estimator whose checkpoints hold a dict with the state of its model, and of its optimizer where the plan has one."""

    def _load_checkpoint(self, run_id: str) -> Optional[Dict[str, Any]]:
        return opened(self._checkpoints(run_id).load())

    def _facts_of(self, checkpoint: Dict[str, Any]) -> Dict[str, Any]:
        return checkpoint

    def _made_model(self, plan: Any, which: str, history: Any, metadata: Dict[str, Any]) -> Any:
        state = opened(self._checkpoints(plan.run_id).load(which))
        plan.model.cpu().load_state_dict(state["model"])
        optimizer = getattr(plan, "optimizer", None)
        if optimizer is not None:
            optimizer.load_state_dict(state["optimizer"])
        told = self._get_model_kwargs(self._module_of(plan).eval(), history, optimizer, plan.run_id, metadata)
        model = self.get_model_class()(**told)
        return model._set(_casts=plan.casts) if model.hasParam("_casts") else model

    def _module_of(self, plan: Any) -> torch.nn.Module:
        """The module that transform() calls."""
        return plan.model

    def _get_model_kwargs(self, model: Any, history: Any, optimizer: Any, run_id: str, metadata: Any) -> Dict[str, Any]:
        return dict(
            history=history, model=model, optimizer=optimizer, feature_columns=self._features_of(list(metadata)),
            input_shapes=self.getInputShapes(), label_columns=self.getLabelCols(), run_id=run_id, _metadata=metadata,
            loss=self.getLoss(), loss_constructors=self.getLossConstructors(),
        )  # fmt: skip
