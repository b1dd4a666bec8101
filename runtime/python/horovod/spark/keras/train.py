"""The training of one rank: what KerasEstimator sends to the ranks. Uses horovod.keras, and no Spark.

Keras is imported when the rank knows which backend, type of numbers and devices it is to have.
"""

import contextlib
import glob
import importlib.util
import os
import posixpath
import tempfile
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy

from horovod.spark.common import fit, orders
from horovod.spark.common.checkpoints import Checkpoints
from horovod.spark.common.run_folder import RunFolder
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
    _show_gpu(use_gpu)
    import keras

    import horovod.keras as hvd

    plan = orders.receive(store, ticket)
    hvd.init()
    keras.config.set_floatx(plan.floatx)
    keras.utils.set_random_seed((plan.seed + hvd.rank()) % (1 << 31))
    with fit.data_of(plan, store, hvd.rank(), hvd.size()) as data:
        return _Fit(plan, store, data).run()


def _show_gpu(use_gpu: bool) -> None:
    """Leaves this process the GPU of its local rank, as each backend would take the first, and some memory of all, too."""
    if not use_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # TensorFlow takes all memory otherwise
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = told.split(",") if told is not None else [str(number) for number in range(len(glob.glob("/dev/nvidia[0-9]*")))]
    if len(visible) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[int(os.environ.get("HVD_LOCAL_RANK", "0")) % len(visible)]


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


def _agreed(callback: Any) -> Any:
    """The callback, or one like it that does on all ranks what it would do on one."""
    import keras

    from horovod._keras3.callbacks import TerminateOnAnyNaN

    is_one = type(callback) is keras.callbacks.TerminateOnNaN  # a class of the program's own may do something else
    return TerminateOnAnyNaN.like(callback) if is_one else callback


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
        first_rate = self._plain_rate()
        if plan.resume is not None:
            facts = state.facts_of(plan.resume)
            state.restore(self._model, plan.resume)
            self._epoch, self.history = facts["epoch"], plan.history_in(facts)
        self._rate = self._scaled_rate()
        for callback in plan.callbacks:
            # These count from the rate at the beginning, which is that of all processes here, whatever they were given.
            if first_rate is not None and isinstance(callback, hvd.callbacks.LearningRateScheduleCallback):
                callback.begin_at(first_rate * hvd.size())

    def _optimizer(self) -> Any:
        """The one that has the rate: the scaling of losses has none of its own."""
        optimizer = self._model.optimizer
        while hasattr(optimizer, "inner_optimizer"):
            optimizer = optimizer.inner_optimizer
        return optimizer

    def _plain_rate(self) -> Optional[float]:
        """None: it follows a schedule."""
        import keras

        optimizer = self._optimizer()
        is_scheduled = isinstance(optimizer._learning_rate, keras.optimizers.schedules.LearningRateSchedule)
        return None if is_scheduled else float(keras.ops.convert_to_numpy(optimizer.learning_rate))

    def _scaled_rate(self) -> Optional[float]:
        """The rate of one process, None for a schedule; the optimizer's becomes that of all."""
        optimizer, rate = self._optimizer(), self._plain_rate()
        if rate is None:
            from horovod.spark.keras.callbacks import Scaled

            optimizer.learning_rate = Scaled(optimizer._learning_rate, self._hvd.size())
            return None
        if self._plan.resume is not None:
            rate = state.facts_of(self._plan.resume)["rate"] or rate
        optimizer.learning_rate = rate * self._hvd.size()
        return rate

    def run(self) -> Optional[Dict[str, List[float]]]:
        from horovod.spark.keras.callbacks import Checkpoint, Validation

        plan, hvd = self._plan, self._hvd
        if self._epoch >= plan.epochs:
            return self.history if hvd.rank() == 0 else None
        with contextlib.ExitStack() as stack:
            program = self._with_logs([_agreed(callback) for callback in plan.callbacks], stack)
            callbacks: List[Any] = []
            if plan.data.validation is not None:
                callbacks.append(Validation(lambda: fit.counted(self._data.val_data()), self._batches, program))
            callbacks += [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(), *program]
            if hvd.rank() == 0:
                # The program's callback comes first: it knows only then whether more or less is better.
                callbacks += ([plan.checkpoint_callback] if plan.checkpoint_callback else []) + [Checkpoint(self)]
            with self._place_of_best():
                self._model.fit(
                    self._training(), steps_per_epoch=self._steps(), epochs=plan.epochs,
                    initial_epoch=self._epoch, callbacks=callbacks,
                    verbose=min(plan.verbose, 2) and 2 if hvd.rank() == 0 else 0,
                )  # fmt: skip
        return self.history if hvd.rank() == 0 else None

    def _steps(self) -> int:
        """Of an epoch. ValueError: nothing says how many."""
        steps = getattr(self._data, "train_steps", None) or self._plan.train_steps
        if not steps:
            raise ValueError(
                f"data_module={type(self._data).__name__}: Keras must know the steps of an epoch; give the class an attribute "
                "train_steps, or KerasEstimator train_steps_per_epoch"
            )
        return steps

    def _with_logs(self, callbacks: Sequence[Any], stack: contextlib.ExitStack) -> List[Any]:
        """The program's callbacks, of which those of TensorBoard log on rank 0 into the run's folder of the store.

        Without one there is one where TensorFlow is Keras' backend and TensorBoard is installed: as with Horovod, every run
        has its logs."""
        import keras

        from horovod.spark.keras.callbacks import SendLogs

        def logs(callback: Any) -> bool:
            return isinstance(callback, keras.callbacks.TensorBoard)

        others = [callback for callback in callbacks if not logs(callback)]
        if self._hvd.rank() != 0:
            return others  # all ranks would write to the same files, or to an executor's disk
        if not self._store.saving_runs():
            return list(callbacks)
        boards = [callback for callback in callbacks if logs(callback)]
        if not boards and keras.config.backend() == "tensorflow" and importlib.util.find_spec("tensorboard"):
            boards = [keras.callbacks.TensorBoard(write_graph=False)]
        if not boards:
            return others
        run_logs = stack.enter_context(RunFolder(self._store, self._plan.run_id, self._store.get_logs_subdir()))
        for number, board in enumerate(boards):
            board.log_dir = os.path.join(run_logs.path, str(number)) if number else run_logs.path
        return [*others, *boards, SendLogs(run_logs)]

    @contextlib.contextmanager
    def _place_of_best(self) -> Iterator[None]:
        """Has the checkpoint_callback write on this machine, and what it wrote in the run's folder afterwards."""
        import keras

        callback = self._plan.checkpoint_callback
        is_one = isinstance(callback, keras.callbacks.ModelCheckpoint)
        has_place = is_one and callback.filepath and not self._store.saving_runs()
        if self._hvd.rank() != 0 or not is_one or has_place:
            yield
            return
        ending = ".weights.h5" if callback.save_weights_only else ".keras"
        before = callback.filepath
        with tempfile.TemporaryDirectory(prefix="hvd-keras-") as folder:  # Keras cannot write to every store
            callback.filepath = os.path.join(folder, posixpath.basename(str(before or "best" + ending)))
            try:
                yield
            finally:
                for name in os.listdir(folder):  # a name may have the epoch in it
                    with open(os.path.join(folder, name), "rb") as file:
                        self._store.write(posixpath.join(self._store.get_run_path(self._plan.run_id), name), file.read())
                callback.filepath = before

    def _training(self) -> Iterator[Tuple[Any, ...]]:
        """All epochs' batches. Keras takes one batch more than it uses, to see what they are like."""
        epoch = self._epoch
        while True:
            for batch in self._data.train_data(epoch, 0):
                yield self._batches(batch)
            epoch += 1

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
