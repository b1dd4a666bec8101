"""KerasEstimator: trains a Keras model on a DataFrame. Its model is in model.py."""

from typing import Any, Dict, Tuple

import keras

from horovod.spark.common import fit, schema
from horovod.spark.common.estimator import HorovodEstimator, needs_rank, warn_of_driver
from horovod.spark.common.params import EstimatorParams as EstimatorParams  # programs import it from here
from horovod.spark.common.params import Parameter, described
from horovod.spark.keras import carried, state, train
from horovod.spark.keras.model import KerasModel

__all__ = ["EstimatorParams", "KerasEstimator", "KerasModel"]

if int(keras.__version__.partition(".")[0]) < 3:
    raise ImportError(f"horovod.spark.keras needs Keras 3, and this is {keras.__version__}; pip install -U keras")

_KERAS = (
    Parameter("custom_objects", "classes and functions that the model's file names", {}),
    Parameter("checkpoint_callback", "one more callback, on rank 0 alone"),
    Parameter("backend_env", "variables for the processes", {"LIBHDFS_OPTS": "-Xms2048m -Xmx2048m"}),
)


@described(_KERAS)
class KerasEstimator(HorovodEstimator):
    """Trains a Keras 3 model on the rows of a DataFrame, on several processes; fit() gives a KerasModel.

    A compiled model needs no optimizer, loss and metrics. Rows come in the shapes of the model's inputs. Ranks have the
    driver's backend of Keras.
    """

    _kind = "keras"

    def _check_told(self) -> None:
        super()._check_told()
        if not isinstance(self.getModel(), keras.Model):
            kind = type(self.getModel())
            raise ValueError(
                f"KerasEstimator: the model is a {kind.__module__}.{kind.__name__}, no model of Keras 3; make it with "
                "`import keras`, or leave TF_USE_LEGACY_KERAS unset"
            )
        if not carried.compiled_with(self.getModel(), self.getCustomObjects()):
            for name in ("optimizer", "loss"):
                if self.getOrDefault(name) is None:
                    raise ValueError(f"KerasEstimator: {name} is required, as the model is not compiled")
        if self.getCheckpointEvery() is not None:
            raise ValueError(
                "KerasEstimator: checkpoint_every is for TorchEstimator; here a checkpoint is of an epoch's end"
            )
        model = self.getModel()
        if not (model.built and getattr(model, "inputs", None) and getattr(model, "outputs", None)):
            raise ValueError(
                "KerasEstimator: the model must know its shapes: make it Sequential or functional, from keras.layers.Input on"
            )

    def _to_saved(self, name: str, value: Any) -> Any:
        if name == "model":
            return carried.Saved(value, self.getCustomObjects())
        return carried.packed(value, self.getCustomObjects()) if name in ("optimizer", "loss", "metrics") else value

    def _from_saved(self, name: str, value: Any) -> Any:
        if name == "model":
            return value.open()
        return carried.unpacked(value, {}) if name in ("optimizer", "loss", "metrics") else value

    def _compile_arguments(self) -> Dict[str, Any]:
        custom_objects = self.getCustomObjects()
        told = carried.compiled_with(self.getModel(), custom_objects)
        own = {
            "optimizer": self.getOptimizer(), "loss": self.getLoss(), "loss_weights": self.getLossWeights(),
            "metrics": self.getMetrics() or None,
        }  # fmt: skip
        return {**told, **{name: carried.packed(value, custom_objects) for name, value in own.items() if value is not None}}

    _rank_main = train.main

    def _rank_arguments(self) -> Tuple[str, bool]:
        return keras.config.backend(), self.getUseGpu()

    def _rank_environment(self) -> Dict[str, str]:
        return dict(self.getBackendEnv() or {})

    def _plan(self, common: Dict[str, Any]) -> train.Plan:
        return train.Plan(
            **common, model=carried.Model(self.getModel(), self.getCustomObjects()), compile=self._compile_arguments(),
            custom_objects=self.getCustomObjects() or {}, callbacks=self.getCallbacks() or [],
            checkpoint_callback=self.getCheckpointCallback(), floatx=keras.config.floatx(),
            label_shapes=self._shapes_of_labels(),
        )  # fmt: skip

    def _opened(self, plan: train.Plan) -> Any:
        """The model of the run, compiled."""
        model = plan.model.open()
        model.compile(**carried.compiling(plan.compile, plan.custom_objects))
        return model

    def _try(self, plan: train.Plan) -> None:
        model = self._opened(plan)
        inputs = len(model.inputs), len(model.outputs)
        if inputs != (len(plan.feature_cols), len(plan.label_cols)):
            raise ValueError(f"the model has {inputs[0]} inputs and {inputs[1]} outputs, for {len(plan.feature_cols)} feature "
                             f"columns and {len(plan.label_cols)} label columns")  # fmt: skip
        if plan.transform is not None:
            return
        batches = train.Batches(plan, model)
        # There may be reasons to refuse zeros, such as a loss of positive labels.
        for rows in (
            lambda: schema.zeros(plan.data.train.columns, plan.columns),
            lambda: fit.first_batch(plan, self.getStore(), None),
        ):
            tensors = batches(rows())
            try:
                model.test_on_batch(*tensors)
                return
            except Exception as error:
                if needs_rank(error):
                    warn_of_driver("the model and its loss cannot be tried", error, "call them all the same")
                    return
                failure = error
        raise ValueError(f"the model or its loss cannot take these columns: {failure}") from failure

    def _check_continues(self, plan: train.Plan, facts: Dict[str, Any]) -> None:
        super()._check_continues(plan, facts)
        state.check_fits(plan.model.open(), plan.resume, plan.run_id)

    def _facts_of(self, checkpoint: bytes) -> Dict[str, Any]:
        return state.facts_of(checkpoint)

    def _made_model(self, plan: train.Plan, which: str, history: Any, metadata: Dict[str, Any]) -> KerasModel:
        if getattr(plan.checkpoint_callback, "monitor", None) and self.getReturnModel() == "best":
            which = "best"  # it may be by a metric of the training; the latest, where none has a score
        content = self._checkpoints(plan.run_id).load(which)
        model = self._opened(plan)
        state.restore(model, content)
        rate = state.facts_of(content)["rate"]
        if rate is not None:
            model.optimizer.learning_rate = rate
        return self.get_model_class()(**self._get_model_kwargs(model, history, plan.run_id, metadata, plan.floatx))

    _endings = ("", ".keras")  # the one that Horovod's programs know, and the one that Keras opens

    def _published(self, model: KerasModel, checkpoint: bytes) -> bytes:
        return carried.content_of(model.getModel())

    def get_model_class(self) -> type:
        return KerasModel

    def _get_model_kwargs(self, model: Any, history: Any, run_id: str, metadata: Any, floatx: str) -> Dict[str, Any]:
        return dict(
            history=history, model=model, feature_columns=self._features_of(list(metadata)), label_columns=self.getLabelCols(),
            custom_objects=self.getCustomObjects(), run_id=run_id, _metadata=metadata, _floatx=floatx,
        )  # fmt: skip
