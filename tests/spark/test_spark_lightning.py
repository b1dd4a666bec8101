"""horovod.spark.lightning: LightningModules that Lightning's own Trainer trains, on real executors."""

import datetime

import numpy
import pyarrow
import pytest
import torch
from estimator_helpers import Here, Lost

lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed here")

from horovod.spark.common import predict  # noqa: E402
from horovod.spark.common.backend import LocalBackend, SparkBackend  # noqa: E402
from horovod.spark.common.dataset import open_prepared  # noqa: E402
from horovod.spark.common.reader import Reader  # noqa: E402
from horovod.spark.lightning import TorchEstimator, TorchModel  # noqa: E402
from horovod.spark.torch.model import RowPredictor  # noqa: E402


def make_module(gamma=0.5):
    # Defined inside of a function, a class travels by value: executors cannot import this module.
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 2)

        def forward(self, x):
            return torch.log_softmax(self.linear(x), 1)

        def training_step(self, batch, batch_number):
            loss = torch.nn.functional.nll_loss(self(batch["features"]), batch["label"])
            self.log("train_loss", loss, on_epoch=True)
            return loss

        def validation_step(self, batch, batch_number):
            self.log("val_loss", torch.nn.functional.nll_loss(self(batch["features"]), batch["label"]),
                     batch_size=len(batch["label"]))  # fmt: skip

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.5)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma)]

    torch.manual_seed(1)
    return Module()


def estimator(store, **values):
    told = dict(backend=Here(), store=store, model=make_module(), feature_cols=["features"], label_cols=["label"], batch_size=16,
                epochs=2, verbose=0, random_seed=3)  # fmt: skip
    return TorchEstimator(**{**told, **values})


def assert_same_weights(model, net):
    for name, value in model.getModel().state_dict().items():
        torch.testing.assert_close(value, net.state_dict()[name], rtol=1e-4, atol=1e-5)


def trained_alone(store, size, epochs=2):
    """The module trained by a plain loop, in the order in which `size` ranks see the rows."""
    net = make_module()
    (optimizer,), (scheduler,) = net.configure_optimizers()
    optimizer.param_groups[0]["lr"] *= size
    scheduler.base_lrs = [rate * size for rate in scheduler.base_lrs]
    readers = [Reader(open_prepared(store).train, store, rank=rank, size=size, batch=16, seed=3) for rank in range(size)]
    for epoch in range(epochs):
        for batches in zip(*[reader.epoch(epoch) for reader in readers]):
            x, y = (torch.tensor(numpy.concatenate([batch[name] for batch in batches])) for name in ("features", "label"))
            optimizer.zero_grad()
            torch.nn.functional.nll_loss(net(x), y).backward()
            optimizer.step()
        scheduler.step()
    for reader in readers:
        reader.close()
    return net


def test_two_processes_of_spark_train_as_one_does_on_the_same_order(spark, frame, store):
    model = estimator(store, backend=SparkBackend(num_proc=2)).fit(frame)
    assert isinstance(model, TorchModel)
    assert_same_weights(model, trained_alone(store, 2))
    assert [entry["epoch"] for entry in model.getHistory()] == [0, 1]
    assert model.getHistory()[0]["metrics"]["train_loss_epoch"] == pytest.approx(model.getHistory()[0]["train"]["loss"])
    rows = model.setOutputCols(["probabilities"]).transform(frame).collect()
    expected = model.getModel()(torch.tensor([row.features for row in rows[:5]])).detach().numpy()
    numpy.testing.assert_allclose([row.probabilities.toArray() for row in rows[:5]], expected, rtol=1e-4)
    alone = model.get_prediction_fn()(model.getModel(), rows[0])
    numpy.testing.assert_allclose(alone.numpy(), expected[:1], rtol=1e-4)

    class Reads(TorchModel):
        """Programs whose rows are no numbers, but names of images, or texts."""

        def get_prediction_fn(self):
            def predict(module, row):
                numbers = torch.tensor([[float(word) for word in row.text.split()]])
                return [module(numbers), numbers.sum()]

            return predict

        def _transform(self, frame):
            return super()._transform(frame).withColumnRenamed("of all", "sum")

    texts = frame.selectExpr("concat_ws(' ', transform(features, value -> cast(value as string))) as text", "label")
    model.__class__ = Reads
    model.setLabelColoumns(["label", "weight"]).setOutputCols(["a.b", "of all"])
    read = model.transform(texts).collect()
    assert read[0].asDict().keys() == {"text", "label", "a.b", "sum"} and [row.label for row in read] == [row.label for row in rows]
    numpy.testing.assert_allclose([row["a.b"].toArray() for row in read[:5]], expected, rtol=1e-4)
    assert read[0]["sum"] == pytest.approx(sum(rows[0].features), abs=1e-4)
    assert model.transform(texts.limit(0)).count() == 0


def test_a_function_of_rows_gets_them_as_spark_has_them_and_outputs_may_differ_in_width(spark):
    from pyspark.ml.linalg import Vectors, VectorUDT

    moment = datetime.datetime(2026, 3, 1, 12, 30)
    rows = [(2, moment, (7, {"x": [moment, None]}), [(0.1, None), None], Vectors.dense([0.1, 2.0])), (3, None, None, None, None),
            (1, moment, (None, None), [], Vectors.sparse(3, [1], [0.1]))]  # fmt: skip
    kinds = ("number long, time timestamp, place struct<`a.b`: long, map: map<string, array<timestamp>>>, "
             "pairs array<struct<left: double, right: string>>")  # fmt: skip
    schema = spark.createDataFrame([], kinds).schema.add("vector", VectorUDT())
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    expected = {row.number: repr(row) for row in frame.collect()}

    class Tells(TorchModel):
        def get_prediction_fn(self):
            return lambda module, row: [float(repr(row) == expected[row.number]), torch.arange(float(row.number))]

    model = Tells(model=make_module(), feature_columns=["number"], label_columns=["a", "b"])
    model.setOutputCols(["same", "up"])
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        told = model.transform(frame).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert [(row.same, row.up.toArray().tolist()) for row in told] == [(1, [0, 1]), (1, [0, 1, 2]), (1, [0])]
    with pytest.raises(ValueError, match="column 'x' is of single numbers, and the model gave 2 for a row of it"):
        predict.Output("x", predict.SCALAR).values([numpy.zeros(1), numpy.zeros(2)], pyarrow.float64())
    for told, labels in ((1.0, 2), ([0.1, 0.9], 1)):
        with pytest.raises(ValueError, match="outputs for . labels; it must return a list with one for each label, in which"):
            RowPredictor(make_module(), lambda module, row: told, labels)([None])


def test_a_run_that_ended_is_trained_further_and_one_that_was_interrupted_is_continued(spark, frame, store, capsys):
    two = LocalBackend(2)
    whole = estimator(store, epochs=3, backend=two).fit(frame)
    estimator(store, run_id="run", epochs=1, backend=two).fit(frame)
    with pytest.raises(RuntimeError, match="rank 0 was killed"):
        estimator(store, run_id="run", epochs=1, backend=Lost(two)).fit(frame)
    second = estimator(store, run_id="run", verbose=1, backend=two).fit(frame)
    assert "run run is continued at epoch 2 of 3 epochs" in capsys.readouterr().out
    assert second.getHistory() == whole.getHistory()[1:]
    assert_same_weights(second, whole.getModel())
    assert_same_weights(second, trained_alone(store, 2, 3))


def test_the_best_epoch_by_val_loss_is_given_and_callbacks_are_called(spark, frame, store):
    class Worsens(lightning.Callback):
        """From the second epoch on the weights are spoilt, so that the first is the best."""

        def on_train_epoch_start(self, trainer, module):
            if trainer.current_epoch:
                module.linear.weight.data.fill_(-100.0)

    model = estimator(store, validation=0.25, callbacks=[Worsens()], epochs=3, backend=LocalBackend(2)).fit(frame)
    losses = [entry["metrics"]["val_loss"] for entry in model.getHistory()]
    assert losses[0] == min(losses) < losses[1]
    data = open_prepared(store).validation
    with Reader(data, store, rank=0, size=1, batch=data.rows, shuffle=False) as reader:
        rows = next(reader.epoch(0))
    said = torch.nn.functional.nll_loss(model.getModel()(torch.tensor(rows["features"])), torch.tensor(rows["label"]))
    assert said.item() == pytest.approx(losses[0], rel=1e-3)  # each row of validation counted once


def test_an_early_stop_of_lightning_ends_each_fit_of_a_run_by_what_it_sees_itself(spark, frame, store):
    for _ in range(2):
        stop = lightning.callbacks.EarlyStopping("val_loss", patience=1, min_delta=100.0)
        model = estimator(store, validation=0.25, callbacks=[stop], epochs=9, run_id="run").fit(frame)
        assert len(model.getHistory()) == 2
    assert [entry["epoch"] for entry in model.getHistory()] == [2, 3]


def test_a_plain_module_is_given_back_as_it_is_and_transforms(spark, frame, store):
    net = torch.nn.Linear(4, 2)
    model = estimator(store, model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=torch.nn.CrossEntropyLoss(),
                      sample_weight_col="weight", validation=0.25, backend=LocalBackend(2)).fit(frame)  # fmt: skip
    assert type(model.getModel()) is torch.nn.Linear and (model.getModel().weight != net.weight).any()
    assert model.getHistory()["val_loss"] < model.getHistory()[0]["metrics"]["val_loss"]
    rows = model.transform(frame).collect()
    expected = model.getModel()(torch.tensor([row.features for row in rows[:5]])).detach().numpy()
    numpy.testing.assert_allclose([row.label__output.toArray() for row in rows[:5]], expected, rtol=1e-4)


def test_estimator_and_model_are_saved_and_loaded(spark, frame, store, tmp_path):
    told = estimator(store, num_gpus=1, terminate_on_nan=False, loader_num_epochs=1, debug_data_loader=True, trainer_args={"gradient_clip_val": 1.0})
    told.write().overwrite().save(str(tmp_path / "estimator"))
    model = TorchEstimator.load(str(tmp_path / "estimator")).setStore(store).setBackend(Here()).fit(frame)
    model.write().overwrite().save(str(tmp_path / "model"))
    again = TorchModel.load(str(tmp_path / "model"))
    assert again.transform(frame).collect() == model.transform(frame).collect()
    assert again.getHistory() == model.getHistory()
    assert again.getHistory()["train_loss_epoch"] == pytest.approx(again.getHistory()[1]["train"]["loss"])


@pytest.mark.parametrize("values, text", [
    (dict(model=torch.nn.Linear(4, 2)), "the model is a Linear, no LightningModule, so optimizer is required"),
    (dict(loss=torch.nn.NLLLoss()), "leave loss out, because the module's own methods say it"),
    (dict(input_shapes=[[-1, 5]]), "'features' has 4 values a row"),
    (dict(trainer_args={"devices": 3}), "trainer_args: devices of the Trainer follow from the estimator"),
    (dict(trainer_args={"max_epochs": -1}), "trainer_args: max_epochs must be 1 or more, not -1"),
    (dict(checkpoint_every=3), "checkpoint_every is not supported with Lightning"),
])  # fmt: skip
def test_bad_input_is_one_clear_error_before_training(spark, frame, store, values, text):
    with pytest.raises(ValueError, match=text):
        estimator(store, backend=None, num_proc=2, **values).fit(frame)
