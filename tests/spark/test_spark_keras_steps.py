"""KerasEstimator: what callbacks do in a fit. The data is Parquet that pyarrow writes, so Spark is not started."""

import functools
import importlib.util
import inspect
import os

import numpy
import pytest
from estimator_helpers import Asked, Here, own_module, points, store_of

os.environ.setdefault("KERAS_BACKEND", "jax" if importlib.util.find_spec("jax") else "torch")
keras = pytest.importorskip("keras", minversion="3.0")
pytest.importorskip("pyspark", reason="pyspark is not installed here")

import horovod.keras as hvd  # noqa: E402
from horovod.spark.common.backend import LocalBackend  # noqa: E402
from horovod.spark.common.store import LocalStore  # noqa: E402
from horovod.spark.keras import KerasEstimator, train  # noqa: E402


def fitted(store, **values):
    told = dict(
        backend=Here(), store=store, model=keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)]),
        optimizer=keras.optimizers.SGD(0.1), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        feature_cols=["features"], label_cols=["label"], batch_size=8, epochs=2, verbose=0, random_seed=3,
    )  # fmt: skip
    told["validation"] = 0.1 if store.exists(store.get_val_data_path()) else None
    return KerasEstimator(**{**told, **values}).fit_on_parquet()


def needs_tensorboard():
    for name in ("tensorflow", "tensorboard"):
        if not importlib.util.find_spec(name):
            pytest.skip(f"{name} is not installed here, which TensorBoard's callback needs")


def events_of(folder):
    """The bytes of TensorBoard's files, and where they are."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return b"".join(path.read_bytes() for path in files), {str(path.parent.relative_to(folder)) for path in files}


def test_tensorboard_logs_into_the_runs_folder_of_the_store_whatever_its_own(tmp_path):
    needs_tensorboard()
    store = store_of(tmp_path, validation=8)
    board = keras.callbacks.TensorBoard(str(tmp_path / "elsewhere"), write_graph=False)
    fitted(store, run_id="run", backend=LocalBackend(2), callbacks=[board])
    content, folders = events_of(tmp_path / "store/runs/run/logs")
    assert b"epoch_loss" in content and folders == {"train", "validation"}
    assert not (tmp_path / "elsewhere").exists()


def test_validation_metrics_are_those_of_all_rows_at_once_whatever_the_batches(tmp_path):
    class Hears(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            self.batches = 0

        def on_test_batch_end(self, batch, logs=None):
            self.batches += 1

        def on_test_end(self, logs=None):
            (tmp_path / f"heard.{hvd.rank()}").write_text(f"{self.batches} {sorted(logs)}")

    store = store_of(tmp_path, validation=77)
    model = fitted(
        store, backend=LocalBackend(2), epochs=1, callbacks=[Hears()], loss="binary_crossentropy", val_batch_size=4,
        model=keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, "sigmoid")]),
        metrics=[keras.metrics.AUC(name="auc"), keras.metrics.Recall(name="recall"), keras.metrics.RootMeanSquaredError(name="root")],
    )  # fmt: skip
    features, labels, _ = zip(*points(77))
    alone = model.getModel().evaluate(numpy.array(features), numpy.array(labels)[:, None], verbose=0, return_dict=True)
    for name in ("auc", "recall", "root", "loss"):
        assert model.getHistory()[f"val_{name}"] == [pytest.approx(alone[name], rel=1e-4)], name
    heard = {(tmp_path / f"heard.{rank}").read_text() for rank in range(2)}
    assert heard == {"10 ['auc', 'loss', 'recall', 'root']"}


def test_a_checkpoint_callbacks_file_is_in_the_runs_folder_and_so_is_the_model(tmp_path):
    store = store_of(tmp_path, validation=8)
    best = keras.callbacks.ModelCheckpoint(str(tmp_path / "elsewhere/at-{epoch}.keras"), save_best_only=False)
    model = fitted(store, run_id="run", checkpoint_callback=best)
    run = tmp_path / "store/runs/run"
    assert {"at-1.keras", "at-2.keras", "checkpoint"} <= {path.name for path in run.iterdir()}
    assert not (tmp_path / "elsewhere").exists() and (run / "checkpoint").read_bytes() == (run / "checkpoint.keras").read_bytes()
    left = keras.models.load_model(run / "checkpoint.keras")
    numpy.testing.assert_allclose(left.get_weights()[0], model.getModel().get_weights()[0])


def test_a_loss_that_refuses_two_rows_of_zeros_is_tried_on_the_first_batch(tmp_path):
    def of_eight(truth, found):
        if truth.shape[0] in (2, 4):
            raise ValueError(f"{truth.shape[0]} rows")
        return keras.losses.sparse_categorical_crossentropy(truth, found, from_logits=True)

    assert len(fitted(store_of(tmp_path), loss=of_eight).getHistory()["loss"]) == 2
    with pytest.raises(ValueError, match="the model or its loss cannot take these columns: .*4 rows"):
        fitted(store_of(tmp_path / "other"), loss=of_eight, batch_size=4)


def test_a_loss_that_needs_horovod_is_told_of_and_left_to_the_processes(tmp_path):
    hvd.shutdown()  # earlier tests have trained in this process

    def of_all_ranks(truth, found):
        return keras.losses.sparse_categorical_crossentropy(truth, found, from_logits=True) / hvd.size()

    text = "the model and its loss cannot be tried on the driver: .*Horovod has not been initialized"
    with pytest.warns(UserWarning, match=text), pytest.raises(InterruptedError):
        fitted(store_of(tmp_path), loss=of_all_ranks, backend=Asked())


@pytest.mark.parametrize("module, values", [
    (own_module(train_steps=4), {}),
    (own_module(), {"train_steps_per_epoch": 4}),
])  # fmt: skip
def test_a_data_module_of_the_programs_own_gives_the_batches_if_their_number_is_known(tmp_path, module, values):
    history = fitted(store_of(tmp_path, validation=8), data_module=module, **values).getHistory()
    assert len(history["val_loss"]) == 2
    with pytest.raises(ValueError, match="data_module=Own: Keras must know the steps of an epoch; give the class an attribute"):
        fitted(store_of(tmp_path / "other"), data_module=own_module())


def test_a_model_of_another_keras_is_refused_by_name(tmp_path):
    class Sequential:  # as tf_keras has it
        __module__ = "tf_keras.src.engine.sequential"

    with pytest.raises(ValueError, match="the model is a tf_keras.src.engine.sequential.Sequential, no model of Keras 3"):
        fitted(store_of(tmp_path), model=Sequential())


def test_a_checkpoint_callback_keeps_its_place_where_the_store_keeps_no_runs(tmp_path):
    store = LocalStore(store_of(tmp_path).prefix_path, save_runs=False)
    fitted(store, checkpoint_callback=keras.callbacks.ModelCheckpoint(str(tmp_path / "mine.keras")))
    assert (tmp_path / "mine.keras").exists() and not list((tmp_path / "store/runs").glob("*/*"))


def test_a_model_that_keras_cannot_write_is_trained_all_the_same(tmp_path):
    loss = functools.partial(keras.losses.sparse_categorical_crossentropy, from_logits=True)
    with pytest.warns(UserWarning, match="the model is not left in the run's folder of the store: TypeError"):
        assert len(fitted(store_of(tmp_path), loss=loss).getHistory()["loss"]) == 2


@pytest.mark.parametrize("told, seen", [("4,5,6", "5"), ("7", "7"), (None, None), ("", "")])
def test_a_process_sees_the_gpu_of_its_local_rank(monkeypatch, told, seen):
    monkeypatch.setenv("HVD_LOCAL_RANK", "4")
    monkeypatch.setattr(train.glob, "glob", lambda pattern: [])
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", told) if told is not None else monkeypatch.delenv("CUDA_VISIBLE_DEVICES", False)
    train._show_gpu(True)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == seen and os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"
    train._show_gpu(False)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_logs_that_do_not_reach_the_store_are_told_of_and_do_not_end_the_run(tmp_path, capsys):
    needs_tensorboard()
    store = store_of(tmp_path)
    (tmp_path / "store/runs/run").mkdir(parents=True)
    (tmp_path / "store/runs/run/logs").write_text("no folder")
    model = fitted(store, run_id="run", callbacks=[keras.callbacks.TensorBoard(write_graph=False)])
    assert len(model.getHistory()["loss"]) == 2
    assert capsys.readouterr().err.count("horovod: the folder logs of the run does not reach the store: ") == 1


def test_all_processes_end_where_one_has_a_loss_that_is_no_number(tmp_path):
    class Spoils(keras.callbacks.Callback):
        """Process 1 gets a weight that is no number, behind what all know, in the third batch."""

        def on_train_batch_begin(self, batch, logs=None):
            if hvd.rank() == 1 and batch == 2:
                self.model.layers[0].kernel.assign(self.model.layers[0].kernel * float("nan"))

        def on_train_batch_end(self, batch, logs=None):
            self.last = batch

        def on_train_end(self, logs=None):
            (tmp_path / f"last.{hvd.rank()}").write_text(str(self.last))

    fitted(store_of(tmp_path), backend=LocalBackend(2), callbacks=[keras.callbacks.TerminateOnNaN(), Spoils()])
    if "raise_error" in inspect.signature(keras.callbacks.TerminateOnNaN).parameters:
        raises = keras.callbacks.TerminateOnNaN(raise_error=True)
        with pytest.raises(RuntimeError, match="Batch 2: invalid loss on one process at least"):
            fitted(store_of(tmp_path / "other"), backend=LocalBackend(2), callbacks=[raises, Spoils()])
    assert [(tmp_path / f"last.{rank}").read_text() for rank in range(2)] == ["2", "2"]


@pytest.mark.parametrize("initial", [None, 7.0])
def test_a_schedule_of_horovods_counts_from_the_rate_of_all_processes_also_in_a_run_that_is_trained_further(tmp_path, initial):
    store = store_of(tmp_path)

    def callback():
        return hvd.callbacks.LearningRateScheduleCallback(initial, multiplier=lambda epoch: 0.5**epoch)

    backend = Here() if initial is None else LocalBackend(2)
    for epochs, rate in ((2, 0.05), (1, 0.025)):
        model = fitted(store, run_id="run", epochs=epochs, backend=backend, callbacks=[callback()])
        assert float(model.getModel().optimizer.learning_rate) == pytest.approx(rate)
