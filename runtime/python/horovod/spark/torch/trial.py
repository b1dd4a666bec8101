"""Tries the model and its losses on the driver, before anything is started: on rows of zeros, or else on the first batch.

So shapes, types and losses that do not fit are one error here, and none on each rank. It also finds out whether the model
and the loss take float32, as Horovod gives them, or need the column's whole numbers, as embeddings and class indices do.
What needs a GPU or Horovod cannot be tried here, and is left to the ranks.
"""

import copy
from typing import Any, Dict, List, Optional, Tuple

import numpy
import torch

from horovod.spark.common import fit, schema
from horovod.spark.common.estimator import needs_rank, warn_of_driver
from horovod.spark.torch.batches import Batches, Casts, Features, match_of
from horovod.spark.torch.losses import losses_of, total_loss

_CPU = torch.device("cpu")

# Whether values are made float32, and why this is not certain: what was tried with them needs a rank.
Found = Tuple[bool, Optional[Exception]]


def casts_of(plan: Any, store: Any) -> Casts:
    """How values are made tensors. ValueError: the model or the loss does not take these columns. It warns of what it
    cannot try."""
    # There may be reasons to refuse zeros: a length is at least 1, and bytes and texts have none.
    for make in (_zeros, _first_rows):
        try:
            return _tried(plan, make(plan, store))
        except Exception as error:
            failure = error
    if plan.transform is None and plan.minibatch is None:
        raise failure
    return Casts()  # functions of the user's own may have reasons to refuse the driver


def _zeros(plan: Any, _: Any) -> Dict[str, numpy.ndarray]:
    batch = schema.zeros(plan.data.train.columns, plan.columns)
    return batch if plan.transform is None else plan.transform(batch)


def _first_rows(plan: Any, store: Any) -> Dict[str, numpy.ndarray]:
    return fit.first_batch(plan, store, plan.transform)


def casts_of_features(plan: Any, store: Any) -> Casts:
    """As casts_of(), of a module that says its own steps. Its forward() need not take the columns, so it is never refused.

    Such steps get a column's type, unless only forward() with float32 works. ValueError: a column does not fit its shape."""
    if plan.transform is None:
        Features(plan.feature_cols, plan.input_shapes)(_zeros(plan, store))
    for make in (_zeros, _first_rows):
        try:
            model = copy.deepcopy(plan.model).cpu().eval()
            return Casts(_try_features(model, plan, make(plan, store), wholes_first=True)[0], labels=False)
        except Exception:
            continue
    return Casts(features=False, labels=False)


def _tried(plan: Any, batch: Dict[str, numpy.ndarray]) -> Casts:
    model = copy.deepcopy(plan.model).cpu().eval()
    features, lack = _try_features(model, plan, batch)
    labels, lack = (True, lack) if lack else _try_labels(model, plan, batch, features)
    if lack:
        kinds = ["float32" if as_float else "they are" for as_float in (features, labels)]
        then = f"call them with features as {kinds[0]} and labels as {kinds[1]}"
        warn_of_driver("the model and its loss cannot be tried", lack, then)
    return Casts(features, labels)


def _losses(plan: Any) -> List[Any]:
    return [copy.deepcopy(loss).cpu() if isinstance(loss, torch.nn.Module) else loss for loss in losses_of(plan)]


def _has_whole(batch: Dict[str, numpy.ndarray], names: List[str]) -> bool:
    return any(batch[name].dtype.kind in "iu" for name in names)


def _try_features(model: torch.nn.Module, plan: Any, batch: Dict[str, numpy.ndarray], wholes_first: bool = False) -> Found:
    first = None
    for as_float in (not wholes_first, wholes_first) if _has_whole(batch, plan.feature_cols) else (True,):
        features = Features(plan.feature_cols, plan.input_shapes, as_float)
        inputs = features(batch)
        try:
            with torch.no_grad():
                model(*inputs)
            return as_float, None
        except Exception as error:
            if needs_rank(error):
                return as_float, error
            first = first or error
    shapes = ", ".join(f"{name}: {list(tensor.shape)}" for name, tensor in zip(plan.feature_cols, inputs))
    raise ValueError(f"the model cannot take the feature columns ({shapes}): {first}") from first


def _try_labels(model: torch.nn.Module, plan: Any, batch: Any, features_as_float: bool) -> Found:
    try:
        losses = _losses(plan)
    except Exception as error:
        if needs_rank(error):
            return True, error
        raise
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
            return as_float, None
        except Exception as error:
            if needs_rank(error):
                return as_float, error
            first = first or error
    shapes = ", ".join(
        f"{name}: output {list(output.shape) if torch.is_tensor(output) else type(output).__name__}, label {list(label.shape)}"
        for name, output, label in zip(plan.label_cols, outputs, labels)
    )
    raise ValueError(f"the loss cannot take the outputs and labels ({shapes}): {first}") from first
