"""Tries the model and its losses on rows of zeros, on the driver, before anything is started.

So shapes, types and losses that do not fit are one error here, and none on each rank. It also finds out whether the model
and the loss take float32, as Horovod gives them, or need the column's whole numbers, as embeddings and class indices do.
"""

import copy
from typing import Any, Dict, List

import numpy
import torch

from horovod.spark.common import schema
from horovod.spark.torch.batches import Batches, Casts, Features, match_of
from horovod.spark.torch.losses import total_loss

_CPU = torch.device("cpu")


def casts_of(plan: Any) -> Casts:
    """How values are made tensors. ValueError: the model or the loss does not take these columns."""
    if plan.transform is None and plan.minibatch is None:
        return _tried(plan, schema.zeros(plan.data.train.columns, plan.columns))
    try:  # functions of the user's own may have reasons to refuse zeros
        batch = schema.zeros(plan.data.train.columns, plan.columns)
        return _tried(plan, batch if plan.transform is None else plan.transform(batch))
    except Exception:
        return Casts()


def casts_of_features(plan: Any) -> Casts:
    """As casts_of(), of a model that compares its outputs with the labels itself."""
    try:
        batch = schema.zeros(plan.data.train.columns, plan.columns)
        batch = batch if plan.transform is None else plan.transform(batch)
        return Casts(_try_features(copy.deepcopy(plan.model).cpu().eval(), plan, batch), labels=False)
    except Exception:
        if plan.transform is None:
            raise
        return Casts()  # a function of the user's own may have reasons to refuse zeros


def _tried(plan: Any, batch: Dict[str, numpy.ndarray]) -> Casts:
    model = copy.deepcopy(plan.model).cpu().eval()
    losses = [make(**vars(plan)) for make in plan.loss_constructors] or list(plan.losses)
    features_as_float = _try_features(model, plan, batch)
    return Casts(features_as_float, _try_labels(model, plan, batch, features_as_float, losses))


def _has_whole(batch: Dict[str, numpy.ndarray], names: List[str]) -> bool:
    return any(batch[name].dtype.kind in "iu" for name in names)


def _try_features(model: torch.nn.Module, plan: Any, batch: Dict[str, numpy.ndarray]) -> bool:
    first = None
    for as_float in (True, False) if _has_whole(batch, plan.feature_cols) else (True,):
        features = Features(plan.feature_cols, plan.input_shapes, as_float)
        inputs = features(batch)
        try:
            with torch.no_grad():
                model(*inputs)
            return as_float
        except Exception as error:
            first = first or error
    shapes = ", ".join(f"{name}: {list(tensor.shape)}" for name, tensor in zip(plan.feature_cols, inputs))
    raise ValueError(f"the model cannot take two rows of zeros of the feature columns ({shapes}): {first}") from first


def _try_labels(model: torch.nn.Module, plan: Any, batch: Any, features_as_float: bool, losses: Any) -> bool:
    first = None
    for as_float in (True, False) if _has_whole(batch, plan.label_cols) else (True,):
        inputs, labels, weights = Batches(plan, Casts(features_as_float, as_float), _CPU)(batch)
        with torch.no_grad():
            outputs, labels = match_of(plan)(model(*inputs), labels)
        try:
            with torch.no_grad():
                loss = total_loss(outputs, labels, plan.loss_weights, losses, weights)
            if not (torch.is_tensor(loss) and loss.numel() == 1):
                raise ValueError(f"it gives {loss!r:.80}, not one number; reduce it with mean()")
            return as_float
        except Exception as error:
            first = first or error
    shapes = ", ".join(
        f"{name}: output {list(output.shape)}, label {list(label.shape)}"
        for name, output, label in zip(plan.label_cols, outputs, labels)
    )
    raise ValueError(f"the loss cannot take two rows of the outputs and labels ({shapes}): {first}") from first
