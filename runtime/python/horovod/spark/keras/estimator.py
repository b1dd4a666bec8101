"""KerasEstimator: trains a Keras model on a DataFrame. Its model is in model.py."""

from typing import Any, Dict, Optional

import keras

from horovod.spark.common import orders, schema
from horovod.spark.common.estimator import HorovodEstimator
from horovod.spark.common.params import EstimatorParams as EstimatorParams  # programs import it from here
from horovod.spark.common.params import Parameter, described
from horovod.spark.keras import carried, state, train
from horovod.spark.keras.model import KerasModel

__all__ = ["EstimatorParams", "KerasEstimator", "KerasModel"]

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
        if not carried.compiled_with(self.getModel()):
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
                "KerasEstimator: the model must know its shapes: begin it with keras.layers.Input, or call it once"
            )

    def _to_saved(self, name: str, value: Any) -> Any:
        if name == "model":
            return carried.Saved(value, self.getCustomObjects())
        return carried.packed(value) if name in ("optimizer", "loss", "metrics") else value

    def _from_saved(self, name: str, value: Any) -> Any:
        if name == "model":
            return value.open()
        return carried.unpacked(value, {}) if name in ("optimizer", "loss", "metrics") else value

    def _compile_arguments(self) -> Dict[str, Any]:
        told = carried.compiled_with(self.getModel())
        own = {
            "optimizer": self.getOptimizer(), "loss": self.getLoss(), "loss_weights": self.getLossWeights(),
            "metrics": self.getMetrics() or None,
        }  # fmt: skip
        return {**told, **{name: carried.packed(value) for name, value in own.items() if value is not None}}

    def _plan(self, data: Any, run_id: str) -> train.Plan:
        names = [column.name for column in data.train.columns]
        features, labels, weight = self._features_of(names), self.getLabelCols(), self.getSampleWeightCol()
        return train.Plan(
            model=carried.Model(self.getModel(), self.getCustomObjects()), compile=self._compile_arguments(),
            custom_objects=self.getCustomObjects() or {}, callbacks=self.getCallbacks() or [],
            checkpoint_callback=self.getCheckpointCallback(), compression=self.getGradientCompression(), data=data,
            module=self._module_of_data(), columns=[*features, *labels, *([weight] if weight else [])],
            feature_cols=features, label_cols=labels, sample_weight_col=weight, transform=self._transform_of_batches(),
            run_id=run_id, batch_size=self.getBatchSize(), val_batch_size=self.getValBatchSize() or self.getBatchSize(),
            epochs=self.getEpochs(), train_steps=self.getTrainStepsPerEpoch(),
            validation_steps=self.getValidationStepsPerEpoch(), backward_passes=self.getBackwardPassesPerStep(),
            shuffle=self._is_shuffled(), seed=self._seed(), train_ahead=self.getTrainReaderNumWorker(),
            in_memory=self.getInMemoryCacheAll(), floatx=keras.config.floatx(), verbose=self.getVerbose(),
            keep_checkpoints=self.getKeepCheckpoints(),
        )  # fmt: skip

    def _try(self, plan: train.Plan) -> Any:
        """The model of the run, when it has taken two rows of zeros. ValueError: it does not take these columns."""
        model = plan.model.open()
        inputs = len(model.inputs), len(model.outputs)
        if inputs != (len(plan.feature_cols), len(plan.label_cols)):
            raise ValueError(f"the model has {inputs[0]} inputs and {inputs[1]} outputs, for {len(plan.feature_cols)} feature "
                             f"columns and {len(plan.label_cols)} label columns")  # fmt: skip
        model.compile(**carried.compiling(plan.compile, plan.custom_objects))
        if plan.transform is not None:
            return model
        batch = schema.zeros(plan.data.train.columns, plan.columns)
        tensors = train.Batches(plan, model)(batch)
        try:
            model.test_on_batch(*tensors)
        except Exception as error:
            raise ValueError(
                f"the model or its loss cannot take two rows of zeros of these columns: {error}"
            ) from error
        model.reset_metrics()
        return model

    def _fit_on_prepared_data(self, backend: Any, data: Any, metadata: Dict[str, Any]) -> KerasModel:
        store, run_id = self.getStore(), self._new_run_id(data)
        plan = self._plan(data, run_id)
        model = self._try(plan)
        try:
            history = self._run_until_done(lambda: self._attempt(backend, store, plan))
            return self._made_model(plan, model, history, metadata)
        finally:
            if not store.saving_runs():
                store.remove(store.get_run_path(run_id))

    def _attempt(self, backend: Any, store: Any, plan: train.Plan) -> Any:
        plan.resume = self._load_checkpoint(plan.run_id) if self._has_checkpoint(plan.run_id) else None
        if plan.resume is not None:
            facts = state.facts_of(plan.resume)
            plan.seed = facts["seed"]
            if self.getVerbose():
                print(f"run {plan.run_id} is continued at epoch {facts['epoch']} of {plan.epochs} epochs")
        ticket = orders.send(store, plan.run_id, plan)
        try:
            return backend.run(train.main, args=(store, ticket, keras.config.backend(), self.getUseGpu()),
                               env=dict(self.getBackendEnv() or {}))[0]  # fmt: skip
        finally:
            orders.remove(store, ticket)

    def _load_checkpoint(self, run_id: str) -> Optional[bytes]:
        return self._checkpoints(run_id).load()

    def _made_model(self, plan: train.Plan, model: Any, history: Any, metadata: Dict[str, Any]) -> KerasModel:
        which = "best" if plan.data.validation is not None and self.getReturnModel() == "best" else "latest"
        content = self._checkpoints(plan.run_id).load(which)
        state.restore(model, content)
        rate = state.facts_of(content)["rate"]
        if rate is not None:
            model.optimizer.learning_rate = rate
        return KerasModel(
            history=history, model=model, feature_columns=plan.feature_cols, label_columns=plan.label_cols,
            custom_objects=self.getCustomObjects(), run_id=plan.run_id, _metadata=metadata, _floatx=plan.floatx,
        )  # fmt: skip
