"""The parameters of the estimators and of their models.

One table a class says all of a parameter: its name, its default, how a value is converted, what it is for. Param, setter,
getter, keyword of the constructor and documentation are made from the table, so that none of them can differ from the others.
"""

import copy
import difflib
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Sequence

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasOutputCols


@dataclass(frozen=True)
class Parameter:
    """A row of the table."""

    name: str
    text: str
    default: Any = None
    convert: Optional[Callable[[Any], Any]] = None
    # For a few parameters, Horovod's accessors do not follow the parameter's name.
    getter: Optional[str] = None
    setter: Optional[str] = None
    # Horovod has no accessor of this name.
    is_ours: bool = False

    def get_name(self) -> str:
        return self.getter or "get" + _camel(self.name)

    def set_name(self) -> str:
        return self.setter or "set" + _camel(self.name)


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _accessors(word: str) -> Dict[str, str]:
    return {"getter": "get" + word, "setter": "set" + word}


_INT = TypeConverters.toInt
_BOOL = TypeConverters.toBoolean
_TEXT = TypeConverters.toString
_TEXTS = TypeConverters.toListString

ESTIMATOR = (
    Parameter("num_proc", "number of processes; default: spark.default.parallelism. Not together with backend"),
    Parameter("model", "the model to train; required"),
    Parameter("backend", "where the processes run: SparkBackend, LocalBackend, HostsBackend or one of your own"),
    Parameter("store", "the Store for data and runs; required"),
    Parameter("optimizer", "the optimizer; its learning rate is multiplied by the number of processes while they train"),
    Parameter("loss", "the loss, or a list of one for each output"),
    Parameter("loss_weights", "a factor for the loss of each output; default: equal ones", None, TypeConverters.toListFloat),
    Parameter("sample_weight_col", "column with a weight for each row", None, _TEXT),
    Parameter("metrics", "what to report beside the loss", []),
    Parameter("feature_cols", "columns that are inputs of the model, in order; default: all others", None, _TEXTS),
    Parameter("label_cols", "columns that the outputs are compared with, in order; required", None, _TEXTS),
    Parameter("continuous_cols", "feature columns with quantities; kept for pipelines that ask for them", None, _TEXTS),
    Parameter("categorical_cols", "feature columns with categories; kept for pipelines that ask for them", None, _TEXTS),
    Parameter("validation", "share of rows in [0, 1), or the column that is true or above 0 in rows for validation, and false or 0 in "
              "those for training"),
    Parameter("gradient_compression", "how gradients are compressed, as in DistributedOptimizer(compression=)"),
    Parameter("compress_sparse_cols", "store sparse vectors as indices and values", False, _BOOL),
    Parameter("batch_size", "rows for a step of each process", 32, _INT),
    Parameter("val_batch_size", "rows of a validation batch; default: batch_size", None, _INT),
    Parameter("epochs", "passes over the training data", 1, _INT),
    Parameter("verbose", "0: silent; 1: a line for each epoch; 2: also steps", 1, _INT),
    Parameter("callbacks", "callbacks of the training loop, where the framework has them", []),
    Parameter("random_seed", "seed of order, split and random numbers; default: one drawn at fit", None, _INT),
    Parameter("shuffle_buffer_size", "deprecated: only 0 has a meaning, which is shuffle=False", None, _INT,
              **_accessors("ShufflingBufferSize")),
    Parameter("shuffle", "a new order of rows in each epoch", True, _BOOL),
    Parameter("partitions_per_process", "files written for each process, at most", 10, _INT),
    Parameter("run_id", "name of the run in the store; one that exists is trained further. Default: a new one", None, _TEXT),
    Parameter("train_steps_per_epoch", "steps of an epoch; default: all data once", None, _INT),
    Parameter("validation_steps_per_epoch", "batches of a validation; default: all data once", None, _INT),
    Parameter("transformation_fn", "called with a pandas frame for each batch, or where it takes none with each row as a dict; gives the "
              "one to use"),
    Parameter("transformation_edit_fields", "what transformation_fn changes: (name, numpy dtype, shape, nullable) each"),
    Parameter("transformation_removed_fields", "columns that transformation_fn takes away"),
    Parameter("train_reader_num_workers", "pieces of training data that are read ahead", 2, _INT,
              **_accessors("TrainReaderNumWorker")),
    Parameter("val_reader_num_workers", "pieces of validation data that are read ahead", 2, _INT,
              **_accessors("ValReaderNumWorker")),
    Parameter("reader_pool_type", "accepted: reading is done by threads", "thread"),
    Parameter("label_shapes", "shape of each label, or of all"),
    Parameter("inmemory_cache_all", "keep a process's data in its memory", False, _BOOL, **_accessors("InMemoryCacheAll")),
    Parameter("use_gpu", "train on the GPU of the process's local rank, where there is one", True, _BOOL),
    Parameter("mp_start_method", "how multiprocessing of the training code starts processes", None, _TEXT),
    Parameter("backward_passes_per_step", "backward passes for one step of the optimizer", 1, _INT),
    Parameter("tensorflow_dataset_prefetch_buffer_size", "accepted: batches are read ahead anyway", 0, _INT),
    Parameter("data_module", "the DataModule class that feeds the loop; default: ArrowDataModule"),
    Parameter("cache", "copy of the data: 'auto' makes none of a plain Parquet scan; 'always', 'never'", "auto", _TEXT,
              is_ours=True),
    Parameter("checkpoint_every", "steps between checkpoints within an epoch; default: only at its end", None, _INT,
              is_ours=True),
    Parameter("keep_checkpoints", "so many checkpoints of a run are kept, and the best", 3, _INT, is_ours=True),
    Parameter("restarts", "a job whose processes were lost is continued so often, from its last checkpoint", 0, _INT,
              is_ours=True),
    Parameter("return_model", "'best' by validation loss, if there is validation, or 'last'", "best", _TEXT, is_ours=True),
)  # fmt: skip

MODEL = (
    Parameter("history", "what training reported, epoch by epoch"),
    Parameter("model", "the trained model"),
    Parameter("feature_columns", "columns that are inputs of the model, in order"),
    Parameter("label_columns", "columns that it was trained to give", setter="setLabelColoumns"),
    Parameter("run_id", "name of the run that trained it", None, _TEXT),
    Parameter("_metadata", "type and shape of the columns", getter="_get_metadata", setter="_set_metadata"),
)


def described(*tables: Sequence[Parameter]) -> Callable[[type], type]:
    """Class decorator: gives a Configured class the parameters of its tables, beside those that it inherits."""

    def decorate(cls: type) -> type:
        own = [parameter for table in tables for parameter in table]
        for parameter in own:
            convert = {"typeConverter": parameter.convert} if parameter.convert else {}
            setattr(cls, parameter.name, Param(Params._dummy(), parameter.name, parameter.text, **convert))
            _add_accessors(cls, parameter)
        cls.table = (*getattr(cls, "table", ()), *own)
        keywords = [inspect.Parameter(p.name, inspect.Parameter.KEYWORD_ONLY, default=p.default) for p in cls.table]
        cls.__signature__ = inspect.Signature(keywords)
        lines = [f"    {p.name}: {p.text}." + (f" Default: {p.default!r}." if p.default else "") for p in cls.table]
        cls.__doc__ = "\n".join([textwrap.dedent(cls.__doc__ or "").rstrip(), "", "Args:", *lines, ""])
        return cls

    return decorate


def _add_accessors(cls: type, parameter: Parameter) -> None:
    name = parameter.name

    def get(self: Params) -> Any:
        return self.getOrDefault(name)

    def put(self: Params, value: Any) -> Params:
        return self._set(**{name: value})

    get.__doc__ = f"`{name}`: {parameter.text}."
    put.__doc__ = f"Sets `{name}` and returns this object. {parameter.text}."
    for function, function_name in ((get, parameter.get_name()), (put, parameter.set_name())):
        function.__name__ = function_name
        function.__qualname__ = f"{cls.__name__}.{function_name}"
        if function_name not in cls.__dict__:  # the class's own method does more
            setattr(cls, function_name, function)


class Configured(Params):
    """Base of classes with a table: keyword arguments, or setters, or setParams."""

    table: Sequence[Parameter] = ()

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self._setDefault(**{parameter.name: copy.copy(parameter.default) for parameter in self.table})
        self.setParams(**values)

    def setParams(self, **values: Any) -> "Configured":
        """Sets several parameters by name, and returns this object."""
        known = [parameter.name for parameter in self.table]
        for name in values:
            if name not in known and not self.hasParam(name):  # a subclass may have some of its own
                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}{hint}")
        return self._set(**values)


@described(ESTIMATOR)
class EstimatorParams(Configured):
    """What all estimators are told."""


@described(MODEL)
class ModelParams(Configured, HasOutputCols):
    """What all trained models know."""

    def setOutputCols(self, value: Sequence[str]) -> "ModelParams":
        """Names of the columns that transform() adds, one for each output; returns this object."""
        return self._set(outputCols=list(value))

    def setLabelColumns(self, value: Sequence[str]) -> "ModelParams":
        """The right spelling of setLabelColoumns."""
        return self._set(label_columns=value)
