"""TorchEstimator and TorchModel on real executors, and in this process where one process shows it."""

import os
import subprocess
import sys

import numpy
import pytest
import torch
from estimator_helpers import Here, Lost, frame_of, points
from ranks import ROOT

from horovod.spark.common import predict
from horovod.spark.common.backend import LocalBackend, SparkBackend
from horovod.spark.common.dataset import open_prepared
from horovod.spark.common.reader import Reader
from horovod.spark.torch import TorchEstimator, TorchModel

EPOCHS = 2


def make_net(outputs=2, seed=1):
    # Defined inside of a function, a class travels by value: executors cannot import this module.
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, outputs)

        def forward(self, x):
            return torch.log_softmax(self.linear(x.float()), 1) if outputs > 1 else self.linear(x)

    torch.manual_seed(seed)
    return Net()


def estimator(store, **values):
    net = values.pop("model", None) or make_net()
    nll = torch.nn.NLLLoss()
    told = dict(
        backend=Here(), store=store, model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5),
        loss=lambda output, target: nll(output, target.long()), input_shapes=[[-1, 4]], feature_cols=["features"],
        label_cols=["label"], batch_size=16, epochs=EPOCHS, verbose=0, random_seed=3,
    )  # fmt: skip
    told.update(values)
    return TorchEstimator(**told)


def weights(model):
    return {name: value.clone() for name, value in model.getModel().state_dict().items()}


def assert_same_weights(one, other):
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=1e-4, atol=1e-5)


def test_two_processes_of_spark_train_as_one_does_on_the_same_order(spark, frame, store, monkeypatch):
    two = SparkBackend(num_proc=2)
    model = estimator(store, backend=two).fit(frame)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "here")  # later than the executors began
    assert two.run(os.getenv, ("MLFLOW_TRACKING_URI",)) == ["here"] * 2
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1 * 2, momentum=0.5)
    data = open_prepared(store).train
    with Reader(data, store, rank=0, size=2, batch=16, seed=3) as first:
        with Reader(data, store, rank=1, size=2, batch=16, seed=3) as second:
            for epoch in range(EPOCHS):
                for one, two in zip(first.epoch(epoch), second.epoch(epoch)):
                    x = torch.tensor(numpy.concatenate([one["features"], two["features"]]))
                    y = torch.tensor(numpy.concatenate([one["label"], two["label"]]))
                    optimizer.zero_grad()
                    torch.nn.functional.nll_loss(net(x), y).backward()
                    optimizer.step()
    assert_same_weights(weights(model), net.state_dict())
    assert [entry["epoch"] for entry in model.getHistory()] == [0, 1]
    assert model.getOptimizer().param_groups[0]["lr"] == pytest.approx(0.1)  # of one process


def test_transform_keeps_columns_and_order_and_adds_a_vector(spark, frame, store):
    model = estimator(store).fit(frame).setOutputCols(["probabilities"])
    result = model.transform(frame)
    assert result.columns == ["features", "label", "weight", "probabilities"]
    assert result.schema["probabilities"].dataType.typeName() == "vectorudt"
    rows = result.collect()
    net = model.getModel()
    for row in rows[:5]:
        expected = net(torch.tensor([row.features])).detach().numpy()[0]
        numpy.testing.assert_allclose(row.probabilities.toArray(), expected, rtol=1e-4)
    assert [row.features for row in rows] == [row.features for row in frame.collect()]


def test_transform_takes_names_with_dots_and_vectors(spark):
    from pyspark.ml.linalg import Vectors

    frame = spark.createDataFrame([(index, Vectors.dense([index, 0.0, 0.0, 1.0]), 1.5) for index in range(5)],
                                  ["my.id", "the.features", "x"])  # fmt: skip
    net = make_net()
    model = TorchModel(model=net, input_shapes=[[-1, 4]], feature_columns=["the.features"], label_columns=["label"])
    result = model.setOutputCols(["p.out"]).transform(frame)
    assert result.columns == ["my.id", "the.features", "x", "p.out"]
    for row in result.collect():
        expected = net(torch.tensor([[float(row["my.id"]), 0.0, 0.0, 1.0]])).detach().numpy()[0]
        numpy.testing.assert_allclose(row["p.out"].toArray(), expected, rtol=1e-4)
        assert row["the.features"].toArray().tolist() == [row["my.id"], 0, 0, 1] and row.x == 1.5


@pytest.mark.parametrize(("rows", "width", "sizes"), [(2000, 4, [1024, 976]), (10, 2**20, [3, 3, 3, 1]), (2, 2**23, [1, 1])])
def test_a_model_gets_fewer_rows_at_once_where_they_are_large(rows, width, sizes):
    """No more than 16 MiB, but one row in any case."""
    pyarrow = pytest.importorskip("pyarrow")
    given = []

    def predictor(arrays):
        given.append(len(arrays["x"]))
        return [arrays["x"][:, 0]]

    class Carried:
        get = staticmethod(lambda: predictor)

    offsets = numpy.arange(0, rows * width + 1, width, dtype=numpy.int32)
    values = pyarrow.array(numpy.repeat(numpy.arange(rows, dtype=numpy.float32), width))
    batch = pyarrow.RecordBatch.from_arrays([pyarrow.ListArray.from_arrays(offsets, values)], ["x"])
    run = predict._Run(Carried, predict._Arrays({"x": 0}, []), ["x"], [predict.Output("y", predict.VECTOR)])
    made = list(run([batch]))
    assert given == sizes and sum((each["y"].to_pylist() for each in made), []) == [[float(row)] for row in range(rows)]


def test_an_output_of_one_number_is_of_the_labels_type(frame):
    metadata = {"label": {"spark_data_type": type(frame.schema["label"].dataType), "shape": None}}
    model = TorchModel(model=make_net(1), input_shapes=[[-1, 4]], feature_columns=["features"], label_columns=["label"],
                       _metadata=metadata)  # fmt: skip
    result = model.transform(frame)
    assert result.schema["label__output"].dataType.typeName() in ("long", "bigint")
    assert all(isinstance(row.label__output, int) for row in result.head(3))

    class NoZeros(torch.nn.Linear):
        def forward(self, x):
            assert x.all()
            return super().forward(x)

    assert model.setModel(NoZeros(4, 1)).transform(frame).schema == result.schema
    assert model.setModel(NoZeros(4, 2)).transform(frame).schema["label__output"].dataType.typeName() == "vectorudt"


def test_a_run_that_ended_is_trained_further_and_one_that_was_interrupted_is_continued(spark, frame, store, capsys):
    whole = estimator(store, epochs=4).fit(frame)
    first = estimator(store, run_id="run", epochs=1).fit(frame)
    assert first.getHistory() == whole.getHistory()[:1]
    with pytest.raises(RuntimeError, match="rank 0 was killed"):
        estimator(store, run_id="run", epochs=1, verbose=1, backend=Lost(Here())).fit(frame)
    assert "run run had ended; its model is trained 1 epoch more" in capsys.readouterr().out
    second = estimator(store, run_id="run", epochs=3, verbose=1).fit(frame)
    assert "run run is continued at epoch 2 step 0 of 4 epochs" in capsys.readouterr().out
    assert second.getHistory() == whole.getHistory()[1:]
    assert_same_weights(weights(whole), weights(second))
    with pytest.raises(ValueError, match="run_id='run' exists, and its checkpoint is of another model or optimizer"):
        estimator(store, run_id="run", epochs=4, model=torch.nn.Sequential(torch.nn.Linear(4, 2))).fit(frame)


def test_rows_that_are_no_batch_are_one_step(spark, frame, store):
    told = "256 rows for training are fewer than one step needs: batch_size 1000 on 1 process; a batch has 256"
    with pytest.warns(UserWarning, match=told):
        few = estimator(store, batch_size=1000).fit(frame)
    assert_same_weights(weights(few), weights(estimator(store, batch_size=256).fit(frame)))
    with pytest.warns(UserWarning, match="batch_size 200, 2 times, on 1 process; a batch has 128"):
        few = estimator(store, batch_size=200, backward_passes_per_step=2).fit(frame)
    assert (weights(few)["linear.weight"] != make_net().linear.weight).any()

    class Many(Here):
        def __init__(self, processes):
            self.processes = processes

        def num_processes(self):
            return self.processes

    with pytest.raises(ValueError, match="256 rows for training are fewer than the 300 processes; lower num_proc"):
        estimator(store, backend=Many(300)).fit(frame)
    told = "256 rows for training are fewer than one step needs: backward_passes_per_step 2 on 150 processes; lower one of them"
    with pytest.raises(ValueError, match=told):
        estimator(store, backend=Many(150), backward_passes_per_step=2).fit(frame)
    with pytest.raises(ValueError, match="train_steps_per_epoch=1 batches are fewer than backward_passes_per_step=2"):
        estimator(store, train_steps_per_epoch=1, backward_passes_per_step=2).fit(frame)


def test_a_run_is_continued_at_the_very_step(spark, frame, store):
    """The checkpoint of a job that ended within an epoch: what is left of it is trained, and nothing twice."""
    whole = estimator(store, epochs=1).fit(frame)
    stopping = {"after": 10}

    def step(model, optimizer, match, loss_of, inputs, labels, weights_of_rows):
        if stopping["after"] == 0:
            raise InterruptedError("the machine is gone")
        stopping["after"] -= 1
        optimizer.zero_grad()
        outputs, labels = match(model(*inputs), labels)
        loss = loss_of(outputs, labels, weights_of_rows)
        loss.backward()
        optimizer.step()
        return outputs, loss

    told = dict(run_id="cut", epochs=1, checkpoint_every=10)
    with pytest.raises(InterruptedError):
        estimator(store, train_minibatch_fn=step, **told).fit(frame)
    assert_same_weights(weights(whole), weights(estimator(store, **told).fit(frame)))
    stopping["after"] = 10
    told["run_id"] = "cut too"
    with pytest.raises(InterruptedError):
        estimator(store, train_minibatch_fn=step, **told).fit(frame)
    # In other batches the tenth step is at other rows, so the epoch begins again: with one step of all rows.
    history = estimator(store, **{**told, "batch_size": 256, "checkpoint_every": None}).fit(frame).getHistory()
    assert len(history) == 1 and history[0]["train"]["loss"] > 0


def test_lost_processes_are_followed_by_others_that_go_on(spark, frame, store):
    class Losing(Here):
        lost = 0

        def run(self, fn, args=(), kwargs=None, env=None):
            results = super().run(fn, args, kwargs, env)
            if self.lost < 1:
                self.lost += 1
                raise RuntimeError("rank 0 was killed")
            return results

    whole = estimator(store).fit(frame)
    model = estimator(store, backend=Losing(), restarts=1).fit(frame)
    assert len(model.getHistory()) == EPOCHS
    assert_same_weights(weights(whole), weights(model))
    with pytest.raises(RuntimeError, match="rank 0 was killed"):
        estimator(store, backend=Losing()).fit(frame)


def test_estimator_and_model_are_saved_and_loaded(spark, frame, store, tmp_path):
    from pyspark.ml import Pipeline, PipelineModel

    told = estimator(store, run_id="a")
    told.write().overwrite().save(str(tmp_path / "estimator"))
    loaded = TorchEstimator.load(str(tmp_path / "estimator"))
    assert (
        loaded.getRunId() == "a"
        and loaded.getBackend() is None
        and loaded.getStore() is None
        and loaded.uid == told.uid
    )
    fitted = Pipeline(stages=[loaded.setStore(store).setBackend(Here())]).fit(frame)
    fitted.write().overwrite().save(str(tmp_path / "model"))
    again = PipelineModel.load(str(tmp_path / "model"))
    assert again.transform(frame).collect() == fitted.transform(frame).collect()
    assert again.stages[0].getOptimizer().param_groups[0]["lr"] == pytest.approx(0.1)


def test_cross_validation_with_two_fits_at_once(spark, frame, store):
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator
    from pyspark.ml.functions import vector_to_array
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
    from pyspark.sql import functions as F

    class Evaluator(MulticlassClassificationEvaluator):
        def _evaluate(self, dataset):
            two = vector_to_array(dataset["label__output"])
            return super()._evaluate(dataset.withColumn("prediction", (two[1] > two[0]).cast("double")).withColumn(
                "label", F.col("label").cast("double")))  # fmt: skip

    told = estimator(store, backend=SparkBackend(num_proc=2), run_id="cv", batch_size=8)
    grid = ParamGridBuilder().addGrid(told.epochs, [1, 3]).build()
    found = CrossValidator(estimator=told, estimatorParamMaps=grid, evaluator=Evaluator(metricName="accuracy"), numFolds=2,
                           parallelism=2, seed=1).fit(frame)  # fmt: skip
    assert len(found.avgMetrics) == 2 and all(0.5 < metric <= 1 for metric in found.avgMetrics)
    assert len(found.bestModel.getHistory()) in (1, 3)
    runs = {
        path.rsplit("/", 1)[-1] for path in store.fs.ls(store.get_localized_path(store.get_runs_path()), detail=False)
    }
    assert len(runs) == 5  # two for each fold, and the best on all rows


def test_texts_of_which_a_function_makes_ids_are_tried_as_they_will_come(spark, store):
    frame = spark.createDataFrame([("a b", 0), ("b c", 1)] * 16, "text string, label bigint")

    def ids(rows):
        return rows.assign(text=[[ord(word) - ord("a") for word in text.split()] for text in rows.text])

    net = torch.nn.Sequential(torch.nn.Embedding(3, 4), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    weighted = torch.nn.CrossEntropyLoss(weight=torch.ones(2))  # neither takes floats
    model = estimator(store, model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.5), loss=weighted, input_shapes=[[-1, 2]],
                      feature_cols=["text"], transformation_fn=ids, epochs=5).fit(frame)  # fmt: skip
    losses = [entry["train"]["loss"] for entry in model.getHistory()]
    assert losses[-1] < losses[0]


def test_validation_metrics_and_weights_are_reported(spark, frame, store):
    def right(output, label):
        return (output.argmax(1) == label).float().mean()

    model = estimator(store, validation=0.25, metrics=[[right]], loss=torch.nn.NLLLoss(), sample_weight_col="weight",
                      backward_passes_per_step=2, transformation_fn=lambda batch: batch, epochs=3).fit(frame)  # fmt: skip
    last = model.getHistory()[-1]
    assert set(last["train"]) == {"loss", "all_metrics"} and 0 <= last["train"]["all_metrics"][0]["group_0_label"] <= 1
    data = open_prepared(store)
    assert data.train.rows + data.validation.rows == 256
    losses = [entry["validation"]["loss"] for entry in model.getHistory()]
    best = estimator(store, model=model.getModel(), epochs=1).getModel()
    with Reader(data.validation, store, rank=0, size=1, batch=data.validation.rows, shuffle=False) as reader:
        rows = next(reader.epoch(0))
    said = torch.nn.functional.nll_loss(best(torch.tensor(rows["features"])), torch.tensor(rows["label"])).item()
    assert said == pytest.approx(min(losses), rel=1e-3)  # the best model is given, and each row counted once


def test_parquet_is_read_where_it_is(spark, frame, store, tmp_path):
    place = str(tmp_path / "there")
    frame.write.parquet(place)
    model = estimator(store, backend=LocalBackend(2)).fit(spark.read.parquet(place))
    assert len(model.getHistory()) == EPOCHS
    written = [path for path in store.fs.find(store.get_localized_path(store.prefix_path)) if path.endswith(".parquet")]
    assert written == []


def test_fit_on_parquet(spark, frame, store):
    frame.write.parquet(store.get_train_data_path())
    model = estimator(store, inmemory_cache_all=True).fit_on_parquet()
    assert model.transform(frame).count() == 256


BAD = {
    "no model": (dict(model=None), ValueError, "model is required"),
    "no labels": (dict(label_cols=[]), ValueError, "label_cols is required"),
    "missing column": (dict(feature_cols=["featrues"]), ValueError, "no column 'featrues'"),
    "wrong shape": (dict(input_shapes=[[-1, 5]]), ValueError, r"'features' has 4 values a row, .* \[-1, 5\]"),
    "wrong width": (
        dict(model=torch.nn.Linear(3, 2), input_shapes=[[-1, 4]], optimizer=None),
        ValueError,
        "optimizer is",
    ),
    "loss and labels": (dict(loss=torch.nn.BCELoss()), ValueError, "the loss cannot take the outputs and labels"),
    "text": (dict(feature_cols=["word"]), ValueError, "'word'"),
    "loss with a lock": (dict(loss="lock"), TypeError, "losses .*cannot pickle"),
    "validation": (dict(validation=1.5), ValueError, "validation must be at least 0 and below 1"),
    "both": (dict(num_proc=2), ValueError, "num_proc or backend, not both"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_error_before_training(spark, frame, store, case):
    import threading

    values, kind, text = BAD[case]
    values = dict(values)
    if values.get("loss") == "lock":
        lock = threading.Lock()

        def loss(output, target):
            with lock:
                return torch.nn.functional.nll_loss(output, target.long())

        values["loss"] = loss
    told = estimator(store)
    told._set(**values)

    class Never(Here):
        def run(self, *_args, **_kwargs):
            raise AssertionError("training was started")

    with pytest.raises(kind, match=text):
        told.setBackend(Never()).fit(frame.selectExpr("*", "'a' as word"))


def test_nulls_are_refused_by_name(spark, store):
    rows = [*points(40), ([0.0] * 4, None, 1.0)]
    with pytest.raises(ValueError, match="'label'.*null"):
        estimator(store).fit(frame_of(spark, rows))


def test_the_notebook_runs_as_a_script():
    """Azure Synapse's notebook, of which only the store and the images are others."""
    script = ROOT / "configs/examples/estimator_torch.py"
    run = subprocess.run([sys.executable, "-W", "ignore", script, "--epochs", "8"], capture_output=True, text=True,
                         timeout=1200)  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    accuracy = float(run.stdout.split("Test accuracy:")[1].split()[0])
    assert accuracy > 0.5, run.stdout
