"""The table of parameters: Horovod's list, and what is made of each row. Needs no session, and no Java."""

import contextlib
import inspect
import io
import os
import pickle
import threading
import types

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed here")

from horovod import spark  # noqa: E402
from horovod.spark import _session  # noqa: E402
from horovod.spark.common import backend, materialise, params, predict, schema  # noqa: E402
from horovod.spark.common.backend import HostsBackend, LocalBackend, SparkBackend  # noqa: E402
from horovod.spark.common.columns import Column  # noqa: E402
from horovod.spark.torch import TorchEstimator, TorchModel  # noqa: E402

# Horovod's, with their defaults.
ALL = dict(
    num_proc=None, model=None, backend=None, store=None, optimizer=None, loss=None, loss_weights=None,
    sample_weight_col=None, metrics=[], feature_cols=None, label_cols=None, continuous_cols=None, categorical_cols=None,
    validation=None, gradient_compression=None, compress_sparse_cols=False, batch_size=32, val_batch_size=None, epochs=1,
    verbose=1, callbacks=[], random_seed=None, shuffle_buffer_size=None, shuffle=True, partitions_per_process=10,
    run_id=None, train_steps_per_epoch=None, validation_steps_per_epoch=None, transformation_fn=None,
    transformation_edit_fields=None, transformation_removed_fields=None, train_reader_num_workers=2,
    val_reader_num_workers=2, reader_pool_type="thread", label_shapes=None, inmemory_cache_all=False, use_gpu=True,
    mp_start_method=None, backward_passes_per_step=1, tensorflow_dataset_prefetch_buffer_size=0, data_module=None,
)  # fmt: skip
TORCH = dict(input_shapes=None, loss_constructors=None, train_minibatch_fn=None)
# Accessors that do not follow their parameter's name.
ODD = {
    "shuffle_buffer_size": ("getShufflingBufferSize", "setShufflingBufferSize"),
    "train_reader_num_workers": ("getTrainReaderNumWorker", "setTrainReaderNumWorker"),
    "val_reader_num_workers": ("getValReaderNumWorker", "setValReaderNumWorker"),
    "inmemory_cache_all": ("getInMemoryCacheAll", "setInMemoryCacheAll"),
}


def test_the_table_is_horovods_list_and_says_what_is_ours():
    table = {row.name: row for row in TorchEstimator.table}
    assert {name: row.default for name, row in table.items() if not row.is_ours} == {**ALL, **TORCH}
    assert len(table) == len(TorchEstimator.table)
    assert list(inspect.signature(TorchEstimator).parameters) == list(table)
    for row in table.values():
        assert f"{row.name}: {row.text}" in TorchEstimator.__doc__


@pytest.mark.parametrize("name", ALL)
def test_each_parameter_has_a_setter_that_returns_the_estimator(name):
    words = "".join(word.capitalize() for word in name.split("_"))
    getter, setter = ODD.get(name, ("get" + words, "set" + words))
    estimator = TorchEstimator()
    assert getattr(estimator, getter)() == ALL[name]
    value = getattr(estimator, getter)()
    assert getattr(estimator, setter)(value) is estimator


def test_the_frame_may_be_given_by_horovods_name_or_by_sparks(monkeypatch):
    monkeypatch.setattr(TorchEstimator, "_fit", lambda estimator, frame: (frame, estimator.getEpochs()))
    monkeypatch.setattr(TorchModel, "_transform", lambda model, frame: (frame, model.getRunId()))
    estimator, model = TorchEstimator(epochs=2), TorchModel(run_id="a")
    assert estimator.fit("rows") == estimator.fit(df="rows") == estimator.fit(dataset="rows", params=None) == ("rows", 2)
    assert estimator.fit(df="rows", params={estimator.epochs: 3}) == ("rows", 3)
    assert model.transform("rows") == model.transform(df="rows") == model.transform(dataset="rows") == ("rows", "a")
    assert model.transform("rows", {model.run_id: "b"}) == ("rows", "b")
    for call in (estimator.fit, model.transform):
        with pytest.raises(TypeError, match="give one DataFrame"):
            call()


@pytest.mark.parametrize("name, value, result", [
    ("batch_size", 8.0, 8), ("epochs", "3", TypeError), ("shuffle", 1, TypeError), ("feature_cols", ("a", "b"), ["a", "b"]),
    ("loss_weights", [1], [1.0]), ("run_id", 5, TypeError), ("label_cols", "a", TypeError),
])  # fmt: skip
def test_values_are_converted_or_refused(name, value, result):
    if result is TypeError:
        with pytest.raises(TypeError, match=name):
            TorchEstimator(**{name: value})
    else:
        found = TorchEstimator(**{name: value}).getOrDefault(name)
        assert found == result and type(found) is type(result)


def test_wrong_keywords_are_named():
    with pytest.raises(TypeError, match="did you mean batch_size"):
        TorchEstimator(batchsize=3)
    with pytest.raises(TypeError):
        TorchEstimator(2)
    with pytest.raises(ValueError, match="not both"):
        TorchEstimator(loss=len, loss_constructors=len)
    with pytest.raises(ValueError, match="backward_passes_per_step"):
        TorchEstimator(backward_passes_per_step=0)


def test_defaults_are_not_shared():
    one, other = TorchEstimator(), TorchEstimator()
    one.getMetrics().append(1)
    assert other.getMetrics() == [] and params.EstimatorParams.metrics.name == "metrics"


def test_copies_with_other_parameters_are_runs_of_their_own():
    told = TorchEstimator(run_id="run")

    def name(**values):
        return told.copy({getattr(told, name): value for name, value in values.items()}).getRunId()

    def loss(factor):
        return lambda output, label: factor * (output - label)

    assert len({told.getRunId(), name(batch_size=2), name(batch_size=3), name(loss=loss(1)), name(loss=loss(2))}) == 5
    assert name(loss=loss(2)) == name(loss=loss(2), backend=LocalBackend(2)) == name(loss=loss(2), backend=LocalBackend(3))
    assert name(backend=LocalBackend(2), store=threading.Lock(), num_proc=2, verbose=2, epochs=9) == name() == "run"
    assert name(run_id="mine") == "mine"
    variant = told.copy({told.batch_size: 2})  # as those of a grid, which are trained at the same time
    assert variant.copy({told.epochs: 2}).getRunId() != variant.copy({told.epochs: 3}).getRunId()


def test_a_run_that_is_continued_splits_its_rows_as_before():
    told = TorchEstimator(run_id="run", validation=0.1)
    seed = told._split_seed()
    assert seed is not None and seed == TorchEstimator(run_id="run", validation=0.1)._split_seed()
    assert seed != TorchEstimator(run_id="other", validation=0.1)._split_seed()
    variant = told.copy({told.batch_size: 2})  # the candidates of a search share their split, and so their copy
    assert variant.copy({told.batch_size: 3})._split_seed() == seed
    assert variant.copy({told.run_id: "mine"})._split_seed() == TorchEstimator(run_id="mine", validation=0.1)._split_seed()
    assert TorchEstimator(run_id="run", validation=0.1, random_seed=5)._split_seed() == 5
    assert TorchEstimator(validation=0.1)._split_seed() is None and TorchEstimator(run_id="run")._split_seed() is None


def test_fits_of_a_cross_validation_without_parameters_are_runs_of_their_own(monkeypatch):
    """Their only difference are the rows, which are a part of the name then."""
    seen = []
    monkeypatch.setattr(TorchEstimator, "_fit", lambda self, rows: seen.append((rows, self._is_variant)))
    told = TorchEstimator(run_id="run")
    for rows in ("fold 1", "fold 2"):
        list(told.fitMultiple(rows, [{}]))
    told.fit("all")
    assert seen == [("fold 1", True), ("fold 2", True), ("all", False)]


def test_the_models_accessors():
    model = TorchModel(label_columns=["a", "b"])
    assert model.getOutputCols() == ["a__output", "b__output"]
    assert model.setOutputCols(["x", "y"]) is model and model.getOutputCols() == ["x", "y"]
    assert model.setLabelColoumns(["c"]).getLabelColumns() == ["c"]
    with pytest.raises(ValueError, match="2 names for 1 labels"):
        model.getOutputCols()


def test_a_backend_has_as_many_processes_as_spark_says_where_none_is_told(monkeypatch):
    session = types.SimpleNamespace(default_parallelism=lambda: 5)
    monkeypatch.setattr(_session, "active", lambda: session)
    assert backend.default_num_proc() == SparkBackend().num_processes() == 5 and SparkBackend(2).num_processes() == 2


def test_backends_refuse_what_their_runs_do_not_take():
    with pytest.raises(TypeError, match="prefix_output_with_timestamps.*it takes .*prefix_output_with_timestamp"):
        SparkBackend(num_proc=2, prefix_output_with_timestamps=True)
    with pytest.raises(TypeError, match="hots"):
        LocalBackend(2, hots="a")
    for name in ("restarts", "elastic_restarts"):
        with pytest.raises(ValueError, match=f"SparkBackend: leave {name} out, .*; use the estimator's restarts="):
            SparkBackend(2, **{name: 1})
    assert HostsBackend("a:8,b:8").num_processes() == 16 and HostsBackend("a").num_processes() == 1
    with pytest.raises(ValueError, match="NAME:SLOTS"):
        HostsBackend("a:many")


def test_the_drivers_variables_are_those_of_ranks_without_others(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "here")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    told = backend._variables_of_the_program()
    assert told["MLFLOW_TRACKING_URI"] == "here" and not {"SPARK_LOCAL_IP", "CUDA_VISIBLE_DEVICES", "PATH", "HOME"} & set(told)
    with monkeypatch.context() as patch:  # after setproctitle the file does not tell what the program began with
        patch.setattr(backend, "open", lambda *_: io.BytesIO(b"airflow: task\0\0"), raising=False)
        assert backend._variables_of_the_program() == {}
    monkeypatch.delenv("OF_THE_DRIVER", raising=False)
    variables = {"MLFLOW_TRACKING_URI": "there", "OF_THE_DRIVER": "1"}
    for name, value in (("MLFLOW_TRACKING_URI", "here"), ("OF_THE_DRIVER", "1")):
        assert backend._call_with_defaults(variables, pickle.dumps((os.getenv, (name,), {}))) == value
    monkeypatch.delenv("OF_THE_DRIVER")


def test_fits_take_turns_where_slots_are_few():
    turns = backend._Turns()
    order = []

    def other():
        with turns.take(2, 2):
            order.append("other")

    thread = threading.Thread(target=other)
    with turns.take(2, 2):
        thread.start()
        order.append("first")
    thread.join(60)
    assert order == ["first", "other"]


def test_fits_take_turns_also_where_spark_does_not_tell_its_slots(monkeypatch):
    session = types.SimpleNamespace(slots=lambda: None, default_parallelism=lambda: 5)
    monkeypatch.setattr(_session, "active", lambda gpus: session)
    assert backend._task_slots(0) == 5


def test_fits_take_turns_by_the_slots_for_their_gpus(monkeypatch):
    backends, taken = (SparkBackend(2), SparkBackend(2, gpus_per_process=4)), []
    monkeypatch.setattr(_session, "active", lambda gpus: types.SimpleNamespace(slots=lambda: 8 // max(gpus, 1)))
    monkeypatch.setattr(backend._turns, "take", lambda *said: contextlib.nullcontext(taken.append(said)))
    monkeypatch.setattr(spark, "run", lambda *_, **__: [])
    for one in backends:
        one.run(len)
    assert taken == [(2, 8), (2, 2)]


class Own:
    """A program's backend, with what an estimator needs of one."""

    def run(self, fn, args=(), kwargs=None, env=None):
        return [fn(*args, **(kwargs or {}))]

    def num_processes(self):
        return 1


@pytest.mark.parametrize(("place", "told", "cache"), [
    (SparkBackend(2), "auto", "auto"), (LocalBackend(2), "auto", "auto"), (HostsBackend("a,b"), "auto", "always"),
    (Own(), "auto", "always"), (Own(), "never", "never"),
])  # fmt: skip
def test_files_outside_of_the_store_are_copied_for_processes_elsewhere(monkeypatch, place, told, cache):
    heard = []

    def prepare(*_, cache, **__):
        heard.append(cache)
        raise KeyboardInterrupt

    monkeypatch.setattr(materialise, "prepare", prepare)
    monkeypatch.setattr(TorchEstimator, "_check_told", lambda estimator: None)
    estimator = TorchEstimator(backend=place, cache=told, label_cols=["y"], feature_cols=["x"])
    with pytest.raises(KeyboardInterrupt):
        estimator._fit(types.SimpleNamespace(columns=["x", "y"]))
    assert heard == [cache]


def test_a_fit_that_somebody_has_cancelled_is_not_run_again():
    estimator = TorchEstimator(restarts=2, verbose=0)
    runs = []

    def lost(why):
        runs.append(why)
        raise RuntimeError("rank 1 was lost") from Exception(why)

    for why, count in (("Job 7 cancelled part of cancelled job group 9", 1), ("ExecutorLostFailure", 3)):
        runs.clear()
        with pytest.raises(RuntimeError, match="rank 1 was lost"):
            estimator._run_until_done(lambda: lost(why))
        assert len(runs) == count


@pytest.mark.parametrize(("dtype", "name", "is_whole"), [
    ("uint8", "smallint", True), ("uint16", "int", True), ("uint32", "bigint", True), ("uint64", "double", False),
    ("float16", "float", False), ("int8", "tinyint", True),
])  # fmt: skip
def test_predictions_are_numbers_whatever_numbers_a_file_has(dtype, name, is_whole):
    output = predict.output_of("y__output", 1, schema.metadata_of([Column("y", "number", dtype)])["y"])
    assert (output.spark_type.simpleString(), output.is_whole) == (name, is_whole)
