"""Tries the model and its losses on rows of zeros, on the driver, before anything is started.

So shapes, types and losses that do not fit are one error here, and none on each rank. It also finds out whether the model
and the loss take float32, as Horovod gives them, or need the column's whole numbers, as embeddings and class indices do.
"""

import copy
from typing import Any, Dict, List

import numpy
import torch

from horovod.spark.torch.batches import Batches, Casts, Features, matched
from horovod.spark.torch.losses import total_loss

# Of one row, a batch norm would have no variance, and a label no batch dimension to confuse.
_ROWS = 2
_CPU = torch.device("cpu")


def zeros(columns: Any, names: List[str]) -> Dict[str, numpy.ndarray]:
    """A batch of the columns with zeros. ValueError: a column has no numbers."""
    batch = {}
    for column in columns:
        if column.name not in names:
            continue
        if column.dtype == "object" or column.kind == "time":
            raise ValueError(
                f"column {column.name!r} is of kind {column.kind}, which no model takes: make numbers of it, with "
                "transformation_fn or before fit()"
            )
        shape = (_ROWS,) if column.width is None else (_ROWS, column.width)
        batch[column.name] = numpy.zeros(shape, column.dtype)
    return batch


@torch.no_grad()
def outputs_of(model: torch.nn.Module, features: Features, batch: Dict[str, numpy.ndarray]) -> List[torch.Tensor]:
    """Of a model in evaluation mode."""
    outputs = model(*features(batch))
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def casts_of(plan: Any) -> Casts:
    """How values are made tensors. ValueError: the model or the loss does not take these columns."""
    if plan.transform is None and plan.minibatch is None:
        return _tried(plan, zeros(plan.data.train.columns, plan.columns))
    try:  # functions of the user's own may have reasons to refuse zeros
        batch = zeros(plan.data.train.columns, plan.columns)
        return _tried(plan, batch if plan.transform is None else plan.transform(batch))
    except Exception:
        return Casts()


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
            outputs, labels = matched(model(*inputs), labels)
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
