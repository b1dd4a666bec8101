"""What the estimators of all frameworks do alike: check what they were told, make the data ready, run, and give a model."""

import hashlib
import inspect
import pickle
import re
import secrets
import time
import uuid
import warnings
from typing import Any, Dict, List, Optional, Sequence, Tuple

from pyspark.ml import Estimator, Model

from horovod.common.exceptions import HorovodInternalError
from horovod.runner import _pickling
from horovod.runner._job import RemoteTraceback
from horovod.spark import _stage
from horovod.spark.common import copies, dataset, fit, materialise, orders, schema
from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.checkpoints import Checkpoints
from horovod.spark.common.datamodule import ArrowDataModule, pandas_transform
from horovod.spark.common.params import EstimatorParams, ModelParams
from horovod.spark.common.serialization import Saved


# Parameters of a fit that make no other run of it, and those with which a run may be continued.
_OF_ANY_RUN = {"backend", "store", "verbose"}
_OF_A_LATER_PART = {"num_proc", "epochs"}


def _frame_of(df: Any, dataset: Any) -> Any:
    """The DataFrame of a call, which has Horovod's name for it or Spark's."""
    if (df is None) == (dataset is None):
        raise TypeError("give one DataFrame")
    return dataset if df is None else df


def _read_columns(told: EstimatorParams, features: List[str]) -> List[str]:
    """All columns that a fit with these features reads."""
    weight = told.getSampleWeightCol()
    return [*features, *told.getLabelCols(), *([weight] if weight else [])]


class HorovodModel(ModelParams, Saved, Model):
    """A trained model as a stage of Spark ML."""

    def transform(self, df: Any = None, params: Optional[Dict[Any, Any]] = None, *, dataset: Any = None) -> Any:
        """The rows of `df` with the model's outputs as further columns. `params` as of Spark's own models."""
        return super().transform(_frame_of(df, dataset), params)

    def getOutputCols(self) -> List[str]:
        """Names of the columns that transform() adds: `<label>__output`, unless setOutputCols() said others."""
        labels = self.getLabelColumns() or []
        names = (
            list(self.getOrDefault("outputCols"))
            if self.isSet("outputCols")
            else [f"{label}__output" for label in labels]
        )
        if len(names) != len(labels):
            raise ValueError(f"setOutputCols: {len(names)} names for {len(labels)} labels")
        return names


class HorovodEstimator(EstimatorParams, Saved, Estimator):
    """Trains a model on the rows of a DataFrame, on several processes."""

    # The first word of a run's name.
    _kind = "horovod"

    def fit_on_parquet(
        self, params: Optional[Dict[Any, Any]] = None, dataset_idx: Optional[int] = None
    ) -> HorovodModel:
        """As fit(), on what stands at the store's train path, and with `validation` at its validation path: Parquet files, of
        whatever origin. ValueError: there are none."""
        if params:
            return self.copy(params).fit_on_parquet(dataset_idx=dataset_idx)
        return self._fit_on_parquet(dataset_idx)

    def _fit_on_parquet(self, dataset_idx: Optional[int] = None) -> HorovodModel:
        """What fit_on_parquet() does. Subclasses of programs override it, as in Horovod."""
        self._check_told()
        # Without feature_cols all columns are read, and which these are the files say.
        columns = _read_columns(self, self.getFeatureCols()) if self.getFeatureCols() else None
        has_validation = bool(self.getValidation())
        data = dataset.open_prepared(self.getStore(), dataset_idx, columns=columns, has_validation=has_validation)
        if has_validation and data.validation is None:
            place = self.getStore().get_val_data_path(dataset_idx)
            raise ValueError(
                f"validation={self.getValidation()!r}, and there is no data at {place}; write it there, or leave validation out"
            )
        with copies.used(self.getStore(), data.train.copy_path):
            return self._fit_checked(data, schema.metadata_of(data.train.columns))

    def copy(self, extra: Optional[Dict[Any, Any]] = None) -> "HorovodEstimator":
        """As Spark's. With other parameters a run is another one: CrossValidator's fits must not continue each other."""
        other = super().copy(extra)
        values = {getattr(param, "name", param): value for param, value in (extra or {}).items()}
        names = set(values) - _OF_ANY_RUN - (set() if self._is_variant else _OF_A_LATER_PART)
        if names and "run_id" not in names and other.getRunId() is not None:
            other._name_of_split = other._name_of_split or other.getRunId()
            packed = [(name, self._to_saved(name, values[name])) for name in sorted(names)]
            other._set(run_id=f"{other.getRunId()}_{hashlib.sha256(_pickling.dumps(packed)).hexdigest()[:8]}")
            other._is_variant = True
        elif "run_id" in names:  # it is the caller's name
            other._is_variant = False
            other._name_of_split = None
        return other

    # For a variant, the name of the run also depends on the rows, because the folds of CrossValidator differ in nothing
    # else.
    _is_variant = False
    # For a variant, the name of the run that it is one of. All variants are judged by the same rows of validation.
    _name_of_split: Optional[str] = None

    def fitMultiple(self, dataset: Any, paramMaps: Any) -> Any:
        """As Spark's. Each of these fits is a run of its own, also where it has the parameters of another one."""
        variant = self.copy()
        variant._is_variant = variant.getRunId() is not None
        return super(HorovodEstimator, variant).fitMultiple(dataset, paramMaps)

    def _fit(self, frame: Any) -> HorovodModel:
        self._check_told()
        backend = self._get_or_create_backend()
        cache = self.getCache()
        if cache == "auto" and not getattr(backend, "reads_where_spark_does", False):
            cache = "always"  # of what is in no store, its processes may see nothing
        data = materialise.prepare(
            frame, self.getStore(), columns=self._features_of(frame.columns), label_columns=self.getLabelCols(),
            sample_weight_col=self.getSampleWeightCol(), validation=self.getValidation() or None,
            num_proc=backend.num_processes(), partitions_per_process=self.getPartitionsPerProcess(),
            compress_sparse=self.getCompressSparseCols(), cache=cache, seed=self._split_seed(),
        )  # fmt: skip
        try:
            return self._fit_checked(data, schema.metadata_of(data.train.columns, frame.schema))
        finally:
            materialise.release(self.getStore(), data)

    def _fit_checked(self, data: Any, metadata: Dict[str, Any]) -> HorovodModel:
        backend = self._get_or_create_backend()
        for name in _read_columns(self, self.getFeatureCols() or []):
            data.train.column(name)  # ValueError
        self._check_rows(data, backend.num_processes())
        return self._fit_on_prepared_data(backend, data, metadata)

    # ---- what differs from framework to framework ----

    # What runs in each rank. It is called with the store, a ticket of orders.py for the plan, and _rank_arguments().
    _rank_main: Any = None

    def _rank_arguments(self) -> Tuple[Any, ...]:
        return ()

    def _rank_environment(self) -> Dict[str, str]:
        return {}

    def _plan(self, common: Dict[str, Any]) -> fit.Plan:
        """`common`: the fields of fit.Plan."""
        raise NotImplementedError

    def _try(self, plan: fit.Plan) -> None:
        """ValueError, before anything is started, where the model does not take the plan's columns."""
        raise NotImplementedError

    def _load_checkpoint(self, run_id: str) -> Any:
        """What the latest checkpoint holds, as a rank's training reads it."""
        return self._checkpoints(run_id).load()

    def _facts_of(self, checkpoint: Any) -> Dict[str, Any]:
        """What a checkpoint says of its run: seed, epoch, step, rows, identity."""
        raise NotImplementedError

    def _made_model(self, plan: fit.Plan, which: str, history: Any, metadata: Dict[str, Any]) -> HorovodModel:
        """`which`: the checkpoint to take the model from."""
        raise NotImplementedError

    # How the names of the files end with what _published() gives. Some frameworks read only a file of their own ending.
    _endings: Sequence[str] = ("",)

    def _published(self, model: HorovodModel, checkpoint: bytes) -> bytes:
        """What the framework reads of a run that has ended."""
        return checkpoint

    def get_model_class(self) -> type:
        """Of what fit() gives. Subclasses of programs override it, and _get_model_kwargs(), as in Horovod."""
        raise NotImplementedError

    # ---- what it was told ----

    def _check_told(self) -> None:
        """ValueError before anything is read or written."""
        for name in ("model", "store", "label_cols"):
            if not self.getOrDefault(name):
                raise ValueError(f"{type(self).__name__}: {name} is required")
        if self.getNumProc() is not None and self.getBackend() is not None:
            raise ValueError(f"{type(self).__name__}: give num_proc or backend, not both: a backend has its own number")
        for name in ("batch_size", "val_batch_size", "epochs", "train_steps_per_epoch", "validation_steps_per_epoch",
                     "backward_passes_per_step", "partitions_per_process", "checkpoint_every"):  # fmt: skip
            value = self.getOrDefault(name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        check_validation(self.getValidation())
        check_data_module(self.getDataModule())
        for name, words in (("cache", ("auto", "always", "never")), ("return_model", ("best", "last"))):
            if self.getOrDefault(name) not in words:
                raise ValueError(f"{name} must be one of {', '.join(words)}, not {self.getOrDefault(name)!r}")
        self._warn_of_what_does_nothing()

    def _warn_of_what_does_nothing(self) -> None:
        if self.getShufflingBufferSize():
            warnings.warn("shuffle_buffer_size does nothing: an epoch's order is of all rows", DeprecationWarning)
        if self.getReaderPoolType() not in (None, "thread"):
            warnings.warn(f"reader_pool_type={self.getReaderPoolType()!r} does nothing: threads read")

    def _features_of(self, columns: List[str]) -> List[str]:
        others = [*self.getLabelCols(), self.getSampleWeightCol(), self.getValidation()]
        return self.getFeatureCols() or [name for name in columns if name not in others]

    def _check_rows(self, data: Any, size: int) -> None:
        if data.train.rows < size:
            raise ValueError(f"{data.train.rows} rows for training are fewer than the {size} processes; lower num_proc")
        passes = self._passes_of_an_epoch()
        if data.train.rows < size * passes:
            raise ValueError(
                f"{data.train.rows} rows for training are fewer than one step needs: backward_passes_per_step {passes} on {size} "
                f"process{'' if size == 1 else 'es'}; lower one of them"
            )

    def _passes_of_an_epoch(self) -> int:
        """For how many batches the rows must be enough, for the optimizer to take a step in each epoch."""
        return 1

    def _batch_rows(self, data: Any) -> int:
        """The rows of a batch: fewer than batch_size where a step would need more rows than there are."""
        told, size = self.getBatchSize(), self._get_or_create_backend().num_processes()
        passes = self._passes_of_an_epoch()
        most = max(1, data.train.rows // (size * passes))
        if most < told:
            times = f", {passes} times," if passes > 1 else ""
            warnings.warn(
                f"{data.train.rows} rows for training are fewer than one step needs: batch_size {told}{times} on {size} "
                f"process{'' if size == 1 else 'es'}; a batch has {most}"
            )
        return min(told, most)

    # ---- the run ----

    def _fit_on_prepared_data(self, backend: Any, data: Any, metadata: Dict[str, Any]) -> HorovodModel:
        store, run_id = self.getStore(), self._new_run_id(data)
        plan = self._plan(self._common(data, run_id))
        transform = plan.transform
        plan.transform = copied(transform)
        check_transform(plan, store)
        self._try(plan)
        plan.transform = transform
        try:
            plan.begin = self._checkpoints(run_id).begin(plan.epochs)
            plan.epochs += plan.begin
            history = self._run_until_done(lambda: self._attempt(backend, store, plan))
            has_best = data.validation is not None and self.getReturnModel() == "best"
            model = self._made_model(plan, "best" if has_best else "latest", history, metadata)
            if store.saving_runs():
                self._checkpoints(run_id).finish()
                self._publish(model, self._checkpoints(run_id), "best" if has_best else "latest")
            return model
        finally:
            if not store.saving_runs():
                store.discard(store.get_run_path(run_id))

    def _publish(self, model: HorovodModel, checkpoints: Checkpoints, which: str) -> None:
        """Leaves the model in the run's folder. The fit has succeeded without that, too."""
        try:
            content = self._published(model, checkpoints.load(which))
            for ending in self._endings:
                checkpoints.publish(content, ending)
        except Exception as error:  # of the store, or of a framework that cannot write this model
            warnings.warn(f"the model is not left in the run's folder of the store: {type(error).__name__}: {error}")

    def _common(self, data: Any, run_id: str) -> Dict[str, Any]:
        features = self._features_of([column.name for column in data.train.columns])
        return dict(
            data=data, module=self.getDataModule() or ArrowDataModule,
            columns=_read_columns(self, features), feature_cols=features, label_cols=self.getLabelCols(),
            sample_weight_col=self.getSampleWeightCol(), transform=self._transform_of_batches(), compression=self.getGradientCompression(),
            run_id=run_id, batch_size=self._batch_rows(data), val_batch_size=self.getValBatchSize() or self.getBatchSize(),
            epochs=self.getEpochs(), train_steps=self.getTrainStepsPerEpoch(),
            validation_steps=self.getValidationStepsPerEpoch(), backward_passes=self.getBackwardPassesPerStep(),
            shuffle=self.getShuffle() and self.getShufflingBufferSize() != 0, seed=self._seed(),
            train_ahead=self.getTrainReaderNumWorker(), in_memory=self.getInMemoryCacheAll(), use_gpu=self.getUseGpu(),
            verbose=self.getVerbose(), keep_checkpoints=self.getKeepCheckpoints(), resume=None,
            begin=0,
        )  # fmt: skip

    def _shapes_of_labels(self) -> Optional[List[Any]]:
        shapes = self.getLabelShapes()
        if not shapes:
            return None
        return list(shapes) if isinstance(shapes[0], (list, tuple)) else [shapes] * len(self.getLabelCols())

    def _attempt(self, backend: Any, store: Any, plan: fit.Plan) -> Any:
        plan.resume = self._load_checkpoint(plan.run_id) if self._checkpoints(plan.run_id).exists() else None
        if plan.resume is not None:
            self._check_continues(plan, self._facts_of(plan.resume))
        ticket = orders.send(store, plan.run_id, plan)
        try:
            arguments = (store, ticket, *self._rank_arguments())
            return backend.run(type(self)._rank_main, args=arguments, env=self._rank_environment())[0]
        finally:
            orders.remove(store, ticket)

    def _check_continues(self, plan: fit.Plan, facts: Dict[str, Any]) -> None:
        has_begun = plan.has_begun(facts)
        plan.seed = facts["seed"] if has_begun else plan.seed  # the order of rows goes on within a fit
        if self.getVerbose():
            where = f"epoch {facts['epoch']}" + (f" step {facts['step']}" if "step" in facts else "")
            more = plan.epochs - plan.begin
            print(f"run {plan.run_id} is continued at {where} of {plan.epochs} epochs" if has_begun else
                  f"run {plan.run_id} had ended; its model is trained {more} epoch{'' if more == 1 else 's'} more")  # fmt: skip
            if facts["identity"] != plan.data.train.identity:
                rows = plan.data.train.rows
                print(f"run {plan.run_id} had {facts['rows']} other rows before; it goes on with {rows}")

    def _transform_of_batches(self) -> Any:
        function = self.getTransformationFn()
        edited, removed = self.getTransformationEditFields(), self.getTransformationRemovedFields()
        return None if function is None else pandas_transform(function, edited, removed)

    def _get_or_create_backend(self) -> Any:
        """Where the processes run. Subclasses of programs override it, as in Horovod."""
        return self.getBackend() or SparkBackend(self.getNumProc())

    def _seed(self) -> int:
        return self.getRandomSeed() if self.getRandomSeed() is not None else secrets.randbits(31)

    def _split_seed(self) -> Optional[int]:
        """Of a random split; None: any. A run that is continued must not train on what was for validation before, so the
        run's name gives the seed where the program gives none."""
        told, name = self.getRandomSeed(), self._name_of_split or self.getRunId()
        if told is not None or name is None or not isinstance(self.getValidation(), float):
            return told
        return int(hashlib.sha256(name.encode()).hexdigest()[:7], 16)

    def _new_run_id(self, data: Any) -> str:
        if self.getRunId() is None:
            return f"{self._kind}_{int(time.time())}_{uuid.uuid4().hex[:8]}"
        return f"{self.getRunId()}_{data.train.identity[:8]}" if self._is_variant else self.getRunId()

    def _checkpoints(self, run_id: str) -> Checkpoints:
        return Checkpoints(self.getStore(), run_id, self.getKeepCheckpoints())

    def _run_until_done(self, attempt: Any) -> Any:
        """`attempt()`, again after a loss of processes, at most `restarts` times. What the training raises is raised, and what
        somebody has cancelled in Spark stays cancelled."""
        for left in range(self.getRestarts(), -1, -1):
            try:
                return attempt()
            except RuntimeError as error:
                is_raised_there = isinstance(error.__cause__, RemoteTraceback)
                is_final = not isinstance(error, HorovodInternalError) if is_raised_there else _stage.is_wanted_end(error.__cause__)
                if left == 0 or is_final:
                    raise
                if self.getVerbose():
                    print(f"processes were lost, and the run is continued from its last checkpoint: {error}")

    # It stands last, because `fit` is the module of that name in what the methods above take.
    def fit(self, df: Any = None, params: Any = None, *, dataset: Any = None) -> Any:
        """Trains on the rows of `df`. `params` as of Spark's own estimators."""
        return super().fit(_frame_of(df, dataset), params)


def copied(transform: Any) -> Any:
    """Returns a copy of a transformation_fn, to be called here: what the function keeps for itself then must not go to the
    processes that train."""
    try:
        return pickle.loads(_pickling.dumps(transform))
    except Exception:
        return transform  # the order to the processes names what cannot be sent


def check_transform(plan: fit.Plan, store: Any) -> None:
    """Calls transformation_fn with the first batch, and warns of what it raises, before any rank is started. The function
    may need what only executors have: a module, a file, a GPU, Horovod."""
    if plan.transform is None or plan.module is not ArrowDataModule:
        return
    failures: List[Exception] = []

    def transform(batch: Any) -> Any:
        try:
            return plan.transform(batch)
        except Exception as error:
            failures.append(error)
            raise

    try:
        fit.first_batch(plan, store, transform)
    except Exception:
        pass  # where it is not the function, the ranks tell what they cannot read
    if failures and not isinstance(failures[0], ImportError):
        warn_of_driver("transformation_fn fails with the first batch", failures[0], "call it too")


# What errors say where the driver lacks a GPU, does not use it, or is no rank.
_NEEDS_RANK = re.compile(r"cuda|nvidia|on the same device|has not been initialized", re.IGNORECASE)


def needs_rank(error: Exception) -> bool:
    """Whether a model or a loss has failed on the driver because it needs a GPU or Horovod, which ranks have."""
    return _NEEDS_RANK.search(str(error)) is not None


def warn_of_driver(what: str, error: Exception, then: str) -> None:
    """Warns of what may fail on the driver alone. `then`: what the processes that train do all the same."""
    warnings.warn(f"{what} on the driver: {type(error).__name__}: {error}; the processes that train {then}")


def check_data_module(module: Any) -> None:
    """ValueError unless it is None or a class whose epochs a run can take up again at any step."""
    if module is None:
        return
    try:
        inspect.signature(module.train_data).bind(None, 0, 0)  # self, epoch, step
    except (AttributeError, TypeError, ValueError):
        name = getattr(module, "__name__", repr(module))
        raise ValueError(
            f"data_module={name}: a class is needed whose train_data(epoch, step) gives the batches of an epoch from a step on, and "
            "whose val_data() gives those of validation: see help(horovod.spark.common.datamodule.DataModule)"
        ) from None


def check_validation(validation: Any) -> None:
    """ValueError unless it is None, a share in [0, 1), or the name of a column."""
    if validation is None or isinstance(validation, str) and validation:
        return
    if isinstance(validation, bool) or not isinstance(validation, (int, float)):
        raise ValueError(f"validation must be a share in [0, 1) or the name of a column, not {validation!r}")
    if not 0 <= validation < 1:
        raise ValueError(f"validation must be at least 0 and below 1, not {validation}")
