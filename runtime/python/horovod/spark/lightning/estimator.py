"""TorchEstimator for LightningModules: its ranks run Lightning's Trainer on their share of a DataFrame."""

import copy
import importlib
import inspect
import types
import warnings
from typing import Any, Callable, Dict

import numpy
import torch

from horovod.spark.common import predict
from horovod.spark.common.params import EstimatorParams as EstimatorParams  # programs import it from here
from horovod.spark.common.params import Parameter, described
from horovod.spark.common.serialization import packed_parameter as _torch_param_serialize  # noqa: F401
from horovod.spark.lightning import train
from horovod.spark.lightning.history import History
from horovod.spark.torch import optimizers, trial
from horovod.spark.torch.batches import Casts, Features
from horovod.spark.torch.checkpointed import CheckpointedEstimator, opened
from horovod.spark.torch.model import RowPredictor
from horovod.spark.torch.model import TorchModel as _TorchModel

__all__ = ["EstimatorParams", "TorchEstimator", "TorchModel"]

# The oldest Lightning that the estimator works with; programs compare it with theirs.
MIN_PL_VERSION = "2.2.0"

_LIGHTNING = (
    Parameter("input_shapes", "shape of each input of the model; a first -1 stands for the rows; default: as the columns are"),
    Parameter("loss_constructors", "left out: the module says its own loss, or loss does"),
    Parameter("train_minibatch_fn", "left out: the module says its own steps"),
    Parameter("num_gpus", "accepted: a process uses the GPU of its local rank", getter="getNumGPUs", setter="setNumGPUs"),
    Parameter("logger", "Lightning's logger; all ranks have it, and it writes on rank 0"),
    Parameter("log_every_n_steps", "steps between lines of the logger", 50),
    Parameter("profiler", "Lightning's profiler, or its name"),
    Parameter("terminate_on_nan", "end with a ValueError after a batch that left the loss or a weight no finite number", False),
    Parameter("loader_num_epochs", "accepted: a loader gives the epochs that are trained"),
    Parameter("debug_data_loader", "accepted: not needed", False),
    Parameter("train_async_data_loader_queue_size", "accepted: train_reader_num_workers says what is read ahead"),
    Parameter("val_async_data_loader_queue_size", "accepted: val_reader_num_workers says what is read ahead"),
    Parameter("trainer_args", "arguments of Lightning's Trainer, by name; they count before the other parameters"),
)

# These have no meaning for a LightningModule, which says its own steps.
_OF_TORCH_ALONE = ("optimizer", "loss", "loss_constructors", "loss_weights", "metrics", "train_minibatch_fn")


class TorchModel(_TorchModel):
    """A trained LightningModule. transform() calls its forward(), and adds a column for each label.

    Where a subclass overrides get_prediction_fn(), transform() calls what that returns, row by row."""

    def get_prediction_fn(self) -> Callable[[Any, Any], Any]:
        """A function of the module and a row that returns an output, or a list with one for each label."""
        casts = self._get_casts() or Casts()
        features = Features(self.getFeatureColumns(), self.getInputShapes(), casts.features)

        def predict_row(model: torch.nn.Module, row: Any) -> Any:
            with torch.no_grad():
                return model(*features({name: _one_row(row[name]) for name in features.names}))

        return predict_row

    def _transform(self, frame: Any) -> Any:
        if type(self).get_prediction_fn is TorchModel.get_prediction_fn:
            return super()._transform(frame)
        names, metadata = self.getOutputCols(), self._get_metadata() or {}
        predictor = RowPredictor(self.getModel().cpu(), self.get_prediction_fn(), len(names))
        widths = predict.widths_in_first_row(frame, names, lambda one, outputs: predict.transform_rows(one, predictor, outputs))
        outputs = [predict.output_of(name, width, metadata.get(label))
                   for name, width, label in zip(names, widths, self.getLabelColumns() or [])]  # fmt: skip
        return predict.transform_rows(frame, predictor, outputs)


def _one_row(value: Any) -> numpy.ndarray:
    """A batch of one row. Spark's vectors give their values by a method."""
    return numpy.asarray([value.toArray() if hasattr(value, "toArray") else value])


@described(_LIGHTNING)
class TorchEstimator(CheckpointedEstimator):
    """Trains a LightningModule on the rows of a DataFrame, on several processes; fit() gives a TorchModel.

    training_step() and validation_step() get a dict with a tensor for each feature, label and weight column. The
    optimizers are those of configure_optimizers(). `callbacks` are Lightning's. Any other torch.nn.Module needs `optimizer`
    and `loss`.
    """

    _kind = "lightning"
    _rank_main = train.main

    def _check_told(self) -> None:
        super()._check_told()
        if self._is_plain():
            self._check_plain()
        else:
            self._check_own_steps()
        if self.getCheckpointEvery() is not None:
            raise ValueError("checkpoint_every is not supported with Lightning; a checkpoint is of an epoch's end")
        self._check_trainer_args(self._trainer_args())

    def _is_plain(self) -> bool:
        """Whether the model is no LightningModule, so that the estimator makes one of it."""
        return not train.package_of(self.getModel())

    def _check_own_steps(self) -> None:
        for name in _OF_TORCH_ALONE:
            if self.getOrDefault(name):
                raise ValueError(
                    f"horovod.spark.lightning.TorchEstimator: leave {name} out, because the module's own methods say it; "
                    "horovod.spark.torch.TorchEstimator trains a plain torch.nn.Module"
                )

    def _check_plain(self) -> None:
        for name in ("optimizer", "loss"):
            if not self.getOrDefault(name):
                kind = type(self.getModel()).__name__
                raise ValueError(
                    f"horovod.spark.lightning.TorchEstimator: the model is a {kind}, no LightningModule, so {name} is required"
                )
        for name in ("loss_constructors", "train_minibatch_fn"):
            if self.getOrDefault(name):
                raise ValueError(
                    f"horovod.spark.lightning.TorchEstimator: leave {name} out; horovod.spark.torch.TorchEstimator takes it"
                )
        if self.getMetrics():
            warnings.warn("metrics do nothing here; log them in the steps of a LightningModule", stacklevel=4)
        optimizers.tied(self.getModel(), self.getOptimizer())  # ValueError

    def _trainer_args(self) -> Dict[str, Any]:
        """Those that are told; None is the Trainer's word for its default."""
        return {name: value for name, value in (self.getTrainerArgs() or {}).items() if value is not None}

    def _check_trainer_args(self, told: Dict[str, Any]) -> None:
        taken = [name for name in told if name in train.OURS]
        if taken:
            raise ValueError(f"trainer_args: {', '.join(taken)} of the Trainer follow from the estimator; leave them out")
        trainer = self._trainer_class()
        unknown = [name for name in told if name not in inspect.signature(trainer).parameters]
        if unknown:
            raise ValueError(
                f"trainer_args: the Trainer of this release of {trainer.__module__.partition('.')[0]} has no {', '.join(unknown)}; "
                "leave them out, or write what has taken their place"
            )
        epochs = told.get("max_epochs", 1)
        if not isinstance(epochs, int) or epochs < 1:
            raise ValueError(f"trainer_args: max_epochs must be 1 or more, not {epochs!r}")
        strategy = told.get("strategy", "auto")
        if not isinstance(strategy, str) or strategy not in train.STRATEGIES:
            raise ValueError(
                f"trainer_args: strategy={strategy!r} is none of {', '.join(train.STRATEGIES)}: the estimator trains with "
                "DistributedDataParallel over libhvd"
            )

    def _trainer_class(self) -> type:
        if self._is_plain():
            from horovod.spark.lightning import legacy

            return legacy.pl.Trainer
        return importlib.import_module(train.package_of(self.getModel())).Trainer

    def _check_rows(self, data: Any, size: int) -> None:
        """A module may log with sync_dist=True, which waits for all ranks, so each of them must have something to validate."""
        super()._check_rows(data, size)
        if data.validation is not None and data.validation.rows < size:
            raise ValueError(
                f"horovod.spark.lightning.TorchEstimator: {data.validation.rows} rows for validation are fewer than the {size} "
                "processes; raise validation, lower the number of processes, or leave validation out"
            )

    def _plan(self, common: Dict[str, Any]) -> train.Plan:
        rest = self._trainer_args()
        callbacks = rest.pop("callbacks", [])
        common["epochs"] = rest.pop("max_epochs", common["epochs"])
        common["backward_passes"] = rest.pop("accumulate_grad_batches", common["backward_passes"])
        logger, profiler = rest.pop("logger", self.getLogger()), rest.pop("profiler", self.getProfiler())
        return train.Plan(
            **common, model=self._to_train(common), input_shapes=self.getInputShapes(),
            callbacks=[*(self.getCallbacks() or []), *(callbacks if isinstance(callbacks, (list, tuple)) else [callbacks])],
            label_shapes=self._shapes_of_labels(), logger=logger, profiler=profiler,
            log_every=rest.pop("log_every_n_steps", self.getLogEveryNSteps()), trainer_args=rest,
            terminate_on_nan=bool(self.getTerminateOnNan()),
        )  # fmt: skip

    def _to_train(self, common: Dict[str, Any]) -> Any:
        """A copy of the model as a LightningModule."""
        if not self._is_plain():
            return copy.deepcopy(self.getModel()).cpu()
        from horovod.spark.lightning import legacy

        # Both are copied in one call, so the copied optimizer works on the copied model.
        model, optimizer = copy.deepcopy((self.getModel(), optimizers.tied(self.getModel(), self.getOptimizer())))
        module = legacy.to_lightning_module(
            model.cpu(), optimizer, self.getLoss(), self.getLossWeights(), common["feature_cols"], common["label_cols"],
            common["sample_weight_col"], common["data"].validation is not None,
        )  # fmt: skip
        module.reshapes = self._shapes_of_labels() is None
        return module

    def _try(self, plan: train.Plan) -> None:
        if not self._is_plain():
            plan.casts = trial.casts_of_features(plan, self.getStore())
            return
        module = plan.model
        told = types.SimpleNamespace(**vars(plan), losses=module.losses, loss_weights=module.loss_weights, loss_constructors=(),
                                     minibatch=None)  # fmt: skip
        module.casts = trial.casts_of(told, self.getStore())
        plan.casts = Casts(module.casts.features, labels=False)

    def _module_of(self, plan: train.Plan) -> torch.nn.Module:
        return plan.model.model if self._is_plain() else plan.model

    def _made_model(self, plan: train.Plan, which: str, history: Any, metadata: Dict[str, Any]) -> TorchModel:
        return super()._made_model(plan, which, History(history), metadata)

    _endings = (".ckpt",)

    def _published(self, model: TorchModel, checkpoint: bytes) -> bytes:
        return opened(checkpoint)["lightning"].numpy().tobytes()

    def get_model_class(self) -> type:
        return TorchModel
