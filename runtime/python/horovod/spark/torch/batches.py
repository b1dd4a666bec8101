"""From a batch's numpy arrays to the tensors that a model and its losses take. Needs no Spark."""

import functools
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy
import torch

Shapes = Optional[Sequence[Sequence[int]]]


@dataclass(frozen=True)
class Casts:
    """Whether values are made float32, as Horovod makes them, or stay whole numbers where the column's are."""

    features: bool = True
    labels: bool = True


def shaped(tensor: torch.Tensor, shape: Optional[Sequence[int]], name: str) -> torch.Tensor:
    """A batch with its rows in the given shape, in which a first -1 stands for the rows. ValueError names the column."""
    if shape is None:
        return tensor
    row = tuple(shape[1:]) if len(shape) and shape[0] == -1 else tuple(shape)
    try:
        return tensor.reshape(len(tensor), *row)
    except RuntimeError:
        width = tensor[0].numel() if len(tensor) else 0
        raise ValueError(f"column {name!r} has {width} values a row, which are not of shape {list(shape)}") from None


def tensor_of(array: numpy.ndarray, name: str, as_float: bool) -> torch.Tensor:
    """Doubles become float32 in any case: models have float32 weights."""
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise ValueError(
            f"column {name!r} is of type {array.dtype}; make numbers of it, with transformation_fn or before"
        )
    if as_float or array.dtype == numpy.float64:
        array = array.astype(numpy.float32, copy=False)
    elif array.dtype.kind == "u" or array.dtype.kind == "i":
        array = array.astype(numpy.int64, copy=False)
    # The reader's arrays may be views of memory that is not ours to write to.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


class Features:
    """The inputs of the model."""

    def __init__(self, names: Sequence[str], shapes: Shapes, as_float: bool = True) -> None:
        """ValueError: the numbers of names and shapes differ."""
        self.names = list(names)
        self._shapes = list(shapes) if shapes else [None] * len(self.names)
        if len(self._shapes) != len(self.names):
            raise ValueError(
                f"{len(self._shapes)} shapes for {len(self.names)} columns ({', '.join(self.names)}); give a shape for each"
            )
        self._as_float = as_float

    def __call__(self, batch: Dict[str, numpy.ndarray]) -> List[torch.Tensor]:
        return [
            shaped(tensor_of(batch[name], name, self._as_float), shape, name)
            for name, shape in zip(self.names, self._shapes)
        ]


    def present(self, batch: Dict[str, numpy.ndarray]) -> Dict[str, torch.Tensor]:
        """Those that the batch has, by name: a transformation_fn may have taken some away."""
        return {
            name: shaped(tensor_of(batch[name], name, self._as_float), shape, name)
            for name, shape in zip(self.names, self._shapes)
            if name in batch
        }


class Batches:
    """Inputs, labels and weights, on the device of the model."""

    def __init__(self, plan: Any, casts: Casts, device: torch.device) -> None:
        self._features = Features(plan.feature_cols, plan.input_shapes, casts.features)
        self._labels = Features(plan.label_cols, plan.label_shapes, casts.labels)
        self._weight = plan.sample_weight_col
        self._device = device

    def __call__(
        self, batch: Dict[str, numpy.ndarray]
    ) -> Tuple[List[torch.Tensor], List[torch.Tensor], Optional[torch.Tensor]]:
        inputs = [self._moved(tensor) for tensor in self._features(batch)]
        labels = [self._moved(tensor) for tensor in self._labels(batch)]
        weights = None
        if self._weight is not None:
            weights = self._moved(tensor_of(batch[self._weight], self._weight, True))
        return inputs, labels, weights

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._device.type == "cpu" else tensor.pin_memory().to(self._device, non_blocking=True)


Match = Callable[[Any, Sequence[torch.Tensor]], Tuple[List[torch.Tensor], List[torch.Tensor]]]


def match_of(plan: Any) -> Match:
    """matched(), with labels in the shapes that the program has said, if it has."""
    return functools.partial(matched, reshapes=plan.label_shapes is None)


def matched(
    outputs: Any, labels: Sequence[torch.Tensor], reshapes: bool = True
) -> Tuple[List[torch.Tensor], List[torch.Tensor]]:
    """Outputs as a list, and labels in the shape of their outputs where they have as many values.

    An output may also be a dict or an object, as the models of some libraries give; its loss takes it as it is."""
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if len(outputs) < len(labels):
        raise ValueError(f"the model gives {len(outputs)} outputs, and there are {len(labels)} label columns")
    same = [
        label.reshape(output.shape) if reshapes and torch.is_tensor(output) and output.numel() == label.numel() else label
        for output, label in zip(outputs, labels)
    ]
    return outputs, same
