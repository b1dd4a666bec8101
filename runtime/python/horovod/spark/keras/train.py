"""The training of one rank: what KerasEstimator sends to the ranks. Uses horovod.keras, and no Spark.

Keras is imported when the rank knows which backend, type of numbers and devices it is to have.
"""

import contextlib
import os
import posixpath
import tempfile
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy

from horovod.spark.common import fit, orders
from horovod.spark.common.checkpoints import Checkpoints
from horovod.spark.common.reader import WEIGHT
from horovod.spark.keras import carried, state


@dataclass
class Plan(fit.Plan):
    """All that a rank must know."""

    model: carried.Model
    compile: Dict[str, Any]
    custom_objects: Dict[str, Any]
    callbacks: Sequence[Any]
    checkpoint_callback: Any
    floatx: str
    label_shapes: Optional[Sequence[Sequence[int]]]


def main(store: Any, ticket: orders.Ticket, backend: str, use_gpu: bool) -> Optional[Dict[str, List[float]]]:
    """Runs in each rank. The history, on rank 0; the model is in the checkpoint."""
    os.environ["KERAS_BACKEND"] = backend
    if not use_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import keras

    import horovod.keras as hvd

    plan = orders.receive(store, ticket)
    hvd.init()
    keras.config.set_floatx(plan.floatx)
    keras.utils.set_random_seed((plan.seed + hvd.rank()) % (1 << 31))
    with fit.data_of(plan, store, hvd.rank(), hvd.size()) as data:
        return _Fit(plan, store, data).run()


def shaped(array: numpy.ndarray, row: Sequence[Optional[int]], name: str) -> numpy.ndarray:
    """A batch with its rows in a model's shape, where None is any size. ValueError names the column."""
    sizes = [-1 if size is None else size for size in row]
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise ValueError(
            f"column {name!r} is of type {array.dtype}; make numbers of it, with transformation_fn or before"
        )
    array = array.astype(numpy.float32, copy=False) if array.dtype == numpy.float64 else array
    if array.ndim == 1 + len(sizes):
        fits = all(size in (-1, real) for size, real in zip(sizes, array.shape[1:]))
    else:
        fits = sizes.count(-1) == 0 and int(numpy.prod(sizes)) == int(numpy.prod(array.shape[1:]))
    if not fits:
        raise ValueError(f"column {name!r} has rows of {list(array.shape[1:])} values, and the model takes {list(row)}")
    return array if array.ndim == 1 + len(sizes) else array.reshape(len(array), *sizes)


class Batches:
    """From the reader's arrays to (inputs, labels, weights)."""

    def __init__(self, plan: Plan, model: Any) -> None:
        self._plan = plan
        self._inputs = [tuple(tensor.shape[1:]) for tensor in model.inputs]
        self._outputs = [tuple(tensor.shape[1:]) for tensor in model.outputs]

    def __call__(self, batch: Dict[str, numpy.ndarray]) -> Tuple[Any, ...]:
        plan = self._plan
        inputs = [shaped(batch[name], row, name) for name, row in zip(plan.feature_cols, self._inputs)]
        told = plan.label_shapes or [None] * len(plan.label_cols)
        labels = [
            self._label(batch[name], row) if shape is None else _labelled(batch[name], shape, name)
            for name, row, shape in zip(plan.label_cols, self._outputs, told)
        ]
        weights = [] if plan.sample_weight_col is None else [batch[plan.sample_weight_col].astype(numpy.float32)]
        return (_one_or_all(inputs), _one_or_all(labels), *weights)

    def _label(self, array: numpy.ndarray, row: Tuple[Optional[int], ...]) -> numpy.ndarray:
        array = array.astype(numpy.float32, copy=False) if array.dtype == numpy.float64 else array
        has_all = None not in row and int(numpy.prod(row)) == int(numpy.prod(array.shape[1:]))
        return array.reshape(len(array), *row) if has_all else array


def _labelled(array: numpy.ndarray, shape: Sequence[int], name: str) -> numpy.ndarray:
    """A batch of labels in the shape of label_shapes, in which a first -1 stands for the rows."""
    row = tuple(shape[1:]) if len(shape) and shape[0] == -1 else tuple(shape)
    array = array.astype(numpy.float32, copy=False) if array.dtype == numpy.float64 else array
    try:
        return array.reshape(len(array), *row)
    except ValueError:
        raise ValueError(
            f"column {name!r} has rows of {list(array.shape[1:])} values, which are not of shape {list(shape)}"
        ) from None


def _one_or_all(arrays: List[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def score(callback: Any, logs: Dict[str, Any]) -> Optional[float]:
    """By what an epoch is the best: the lower, the better; None: it cannot be. `callback`: the plan's checkpoint_callback."""
    monitor = getattr(callback, "monitor", None)
    value = logs.get(monitor or "val_loss")
    if value is None or numpy.ndim(value) != 0:
        return None
    is_better = getattr(callback, "monitor_op", None) if monitor else None
    return -float(value) if is_better is not None and bool(is_better(2.0, 1.0)) else float(value)


def _number_or_list(value: Any) -> Any:
    """A metric's value for the history, which is JSON. Some metrics have one number for each class."""
    import keras

    return numpy.asarray(keras.ops.convert_to_numpy(value), numpy.float64).tolist()


class _Fit:
    """One rank's part of a fit."""

    def __init__(self, plan: Plan, store: Any, data: Any) -> None:
        import horovod.keras as hvd

        self._hvd = hvd
        self._plan = plan
        self._data = data
        self._store = store
        self._checkpoints = Checkpoints(store, plan.run_id, plan.keep_checkpoints)
        self._model = plan.model.open()
        self._batches = Batches(plan, self._model)
        told = carried.compiling(plan.compile, plan.custom_objects)
        compression = {"compression": plan.compression} if plan.compression else {}
        told["optimizer"] = hvd.DistributedOptimizer(
            told["optimizer"],
            backward_passes_per_step=plan.backward_passes,
            average_aggregated_gradients=True,
            **compression,
        )
        self._model.compile(**told)
        self._epoch, self.history = 0, {}
        if plan.resume is not None:
            facts = state.facts_of(plan.resume)
            state.restore(self._model, plan.resume)
            self._epoch, self.history = facts["epoch"], facts["history"]
        self._rate = self._scaled_rate()

    def _scaled_rate(self) -> Optional[float]:
        """The rate of one process, None for a schedule; the optimizer's becomes that of all."""
        import keras

        optimizer = self._model.optimizer
        while hasattr(optimizer, "inner_optimizer"):  # the scaling of losses has no rate of its own
            optimizer = optimizer.inner_optimizer
        if isinstance(optimizer._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            from horovod.spark.keras.callbacks import Scaled

            optimizer.learning_rate = Scaled(optimizer._learning_rate, self._hvd.size())
            return None
        rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        if self._plan.resume is not None:
            rate = state.facts_of(self._plan.resume)["rate"] or rate
        optimizer.learning_rate = rate * self._hvd.size()
        return rate

    def run(self) -> Optional[Dict[str, List[float]]]:
        from horovod.spark.keras.callbacks import Checkpoint, Validation

        plan, hvd = self._plan, self._hvd
        callbacks: List[Any] = [] if plan.data.validation is None else [Validation(self._validation, self._batches)]
        callbacks += [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
        callbacks += list(plan.callbacks)
        if hvd.rank() == 0:
            # The program's callback comes first: it knows only then whether more or less is better.
            callbacks += ([plan.checkpoint_callback] if plan.checkpoint_callback else []) + [Checkpoint(self)]
        if self._epoch < plan.epochs:
            with self._place_of_best():
                self._model.fit(
                    self._training(), steps_per_epoch=self._data.train_steps, epochs=plan.epochs,
                    initial_epoch=self._epoch, callbacks=callbacks,
                    verbose=min(plan.verbose, 2) and 2 if hvd.rank() == 0 else 0,
                )  # fmt: skip
        return self.history if hvd.rank() == 0 else None

    @contextlib.contextmanager
    def _place_of_best(self) -> Iterator[None]:
        """Gives a BestModelCheckpoint its file, which is in the run's folder afterwards."""
        callback = self._plan.checkpoint_callback
        if self._hvd.rank() != 0 or not isinstance(callback, self._hvd.callbacks.BestModelCheckpoint) or callback.filepath:
            yield
            return
        name = "best.weights.h5" if callback.save_weights_only else "best.keras"
        with tempfile.TemporaryDirectory(prefix="hvd-keras-") as folder:  # Keras cannot write to every store
            callback.filepath = os.path.join(folder, name)
            try:
                yield
            finally:
                if os.path.exists(callback.filepath):
                    with open(callback.filepath, "rb") as file:
                        path = posixpath.join(self._store.get_run_path(self._plan.run_id), name)
                        self._store.write(path, file.read())
                callback.filepath = None

    def _training(self) -> Iterator[Tuple[Any, ...]]:
        """All epochs' batches. Keras takes one batch more than it uses, to see what they are like."""
        epoch = self._epoch
        while True:
            for batch in self._data.train_data(epoch):
                yield self._batches(batch)
            epoch += 1

    def _validation(self) -> Iterator[Dict[str, numpy.ndarray]]:
        """Each row once: rows that only fill the last batch are left out."""
        for batch in self._data.val_data():
            is_counted = batch.pop(WEIGHT) > 0
            if is_counted.any():
                yield batch if is_counted.all() else {name: values[is_counted] for name, values in batch.items()}

    def save(self, epoch: int, logs: Dict[str, float]) -> None:
        """On rank 0, after an epoch."""
        import keras

        for name, value in logs.items():
            self.history.setdefault(name, []).append(_number_or_list(value))
        plan = self._plan
        rate = self._rate
        if rate is not None:  # callbacks may have changed it
            rate = float(keras.ops.convert_to_numpy(self._model.optimizer.learning_rate)) / self._hvd.size()
        facts = {
            "epoch": epoch + 1, "history": self.history, "seed": plan.seed, "size": self._hvd.size(),
            "rows": plan.data.train.rows, "identity": plan.data.train.identity, "keras": keras.__version__,
        }  # fmt: skip
        self._checkpoints.save(state.packed(self._model, rate, facts), epoch + 1, 0, score(self._plan.checkpoint_callback, logs))
