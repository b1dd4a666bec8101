"""KerasEstimator and KerasModel, on the first backend of Keras that is there."""

import importlib.util
import os

import numpy
import pytest
from estimator_helpers import Here, Lost

os.environ.setdefault("KERAS_BACKEND", "jax" if importlib.util.find_spec("jax") else "torch")
keras = pytest.importorskip("keras", minversion="3.0")

from horovod.spark.common.backend import LocalBackend, SparkBackend  # noqa: E402
from horovod.spark.common.dataset import open_prepared  # noqa: E402
from horovod.spark.common.reader import Reader  # noqa: E402
from horovod.spark.common.store import LocalStore  # noqa: E402
from horovod.spark.keras import KerasEstimator, KerasModel  # noqa: E402


def make_net(outputs=2):
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(outputs)])


def estimator(store, **values):
    told = dict(
        backend=Here(), store=store, model=make_net(), optimizer=keras.optimizers.SGD(0.1, momentum=0.5),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"], feature_cols=["features"],
        label_cols=["label"], batch_size=16, epochs=2, verbose=0, random_seed=3,
    )  # fmt: skip
    return KerasEstimator(**{**told, **values})


def assert_same_weights(one, other):
    for mine, theirs in zip(one.get_weights(), other.get_weights()):
        numpy.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)


def test_two_processes_of_spark_train_as_one_does_on_the_same_order(spark, frame, store):
    model = estimator(store, backend=SparkBackend(num_proc=2), validation=0.2, return_model="last").fit(frame)
    net = make_net()
    net.compile(keras.optimizers.SGD(0.2, momentum=0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    data = open_prepared(store).train
    with Reader(data, store, rank=0, size=2, batch=16, seed=3) as first:
        with Reader(data, store, rank=1, size=2, batch=16, seed=3) as second:
            for epoch in range(2):
                for one, two in zip(first.epoch(epoch), second.epoch(epoch)):
                    net.train_on_batch(*[numpy.concatenate([one[name], two[name]]) for name in ("features", "label")])
    assert_same_weights(model.getModel(), net)
    assert {name: len(values) for name, values in model.getHistory().items()} == dict.fromkeys(
        ["accuracy", "loss", "val_accuracy", "val_loss"], 2)  # fmt: skip
    assert float(model.getModel().optimizer.learning_rate) == pytest.approx(0.1)  # of one process
    rows = model.transform(frame).collect()
    expected = model.getModel().predict_on_batch(numpy.array([row.features for row in rows], numpy.float32))
    numpy.testing.assert_allclose([row.label__output.toArray() for row in rows], expected, rtol=1e-3, atol=1e-4)


def test_a_run_that_ended_is_trained_further_and_one_that_was_interrupted_is_continued(spark, frame, store):
    two = LocalBackend(2)
    whole = estimator(store, epochs=3, backend=two).fit(frame)
    estimator(store, run_id="run", epochs=1, backend=two).fit(frame)
    with pytest.raises(RuntimeError, match="rank 0 was killed"):
        estimator(store, run_id="run", epochs=1, backend=Lost(two)).fit(frame)
    second = estimator(store, run_id="run", epochs=2, backend=two).fit(frame)
    assert second.getHistory()["loss"] == pytest.approx(whole.getHistory()["loss"][1:], rel=1e-3)
    assert_same_weights(whole.getModel(), second.getModel())


def test_estimator_and_model_are_saved_and_loaded(spark, frame, store, tmp_path):
    told = estimator(store)
    told.write().overwrite().save(str(tmp_path / "estimator"))
    loaded = KerasEstimator.load(str(tmp_path / "estimator")).setStore(store).setBackend(Here())
    model = loaded.fit(frame)
    model.write().overwrite().save(str(tmp_path / "model"))
    again = KerasModel.load(str(tmp_path / "model"))
    assert_same_weights(model.getModel(), again.getModel())
    assert again.getHistory() == model.getHistory()


def test_a_compiled_model_brings_its_own_optimizer_and_loss(spark, frame, store):
    net = make_net()
    net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    told = estimator(store, model=net, metrics=[], sample_weight_col="weight")
    told._set(optimizer=None, loss=None)
    model = told.fit(frame)
    assert list(model.getHistory()) == ["loss"] and model.getModel().optimizer.name == "adam"


def test_a_loss_of_the_program_and_metrics_of_several_values_go_all_the_way(spark, frame, store, tmp_path):
    from horovod.keras.callbacks import BestModelCheckpoint

    def my_loss(truth, found):
        return keras.losses.categorical_crossentropy(keras.ops.one_hot(truth[:, 0], 2), found, from_logits=True)

    class Correct(keras.metrics.F1Score):
        def update_state(self, truth, found, sample_weight=None):
            super().update_state(keras.ops.one_hot(truth[:, 0], 2), keras.ops.softmax(found))

    net = make_net()
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 100, 0.9)
    net.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(rate)), my_loss, metrics=[Correct(name="f1")])
    best = BestModelCheckpoint(monitor="loss", mode="max")
    store = LocalStore(str(tmp_path / "kept"), save_runs=True)
    told = estimator(store, model=net, metrics=[], validation=0.2, label_shapes=[[-1, 1]], checkpoint_callback=best, run_id="r")
    told._set(optimizer=None, loss=None)
    model = told.fit(frame)
    history = model.getHistory()
    assert [len(value) for value in history["f1"] + history["val_f1"]] == [2] * 4
    assert store.exists(store.get_run_path("r") + "/best.keras")
    first = told.copy().setEpochs(1).setRunId("first").setCheckpointCallback(None).fit(frame)
    assert_same_weights(model.getModel(), first.getModel())  # the loss was highest in the first epoch
    model.write().overwrite().save(str(tmp_path / "model"))
    assert_same_weights(model.getModel(), KerasModel.load(str(tmp_path / "model")).getModel())


@pytest.mark.parametrize("values, text", [
    (dict(model=keras.Sequential([keras.layers.Dense(2)])), "must know its shapes"),
    (dict(model=keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(2)])), "'features' has rows of"),
    (dict(optimizer=None), "optimizer is required"),
    (dict(feature_cols=["features", "weight"]), "1 inputs and 1 outputs, for 2 feature columns"),
])  # fmt: skip
def test_bad_input_is_one_clear_error_before_training(spark, frame, store, values, text):
    with pytest.raises(ValueError, match=text):
        estimator(store, backend=None, num_proc=2, **values).fit(frame)
