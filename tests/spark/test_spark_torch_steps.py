"""TorchEstimator: what programs for Horovod tell it and find afterwards. The data is Parquet that pyarrow writes, so Spark is
not started."""

import io
import json
import threading
import types
import warnings

import numpy
import pytest
import torch
from estimator_helpers import Asked, Here, own_module, store_of

pytest.importorskip("pyspark", reason="pyspark is not installed here")

from pyspark.ml.param import Param, Params  # noqa: E402

import horovod.torch as hvd  # noqa: E402
from horovod.spark.common.datamodule import pandas_transform  # noqa: E402
from horovod.spark.common.serialization import packed, unpacked  # noqa: E402
from horovod.spark.torch import TorchEstimator, TorchModel, optimizers, train  # noqa: E402
from horovod.spark.torch.batches import Casts, match_of  # noqa: E402
from horovod.spark.torch.losses import total_loss  # noqa: E402


def told(store, kind=TorchEstimator, **values):
    net = torch.nn.Linear(4, 1)
    given = dict(backend=Here(), store=store, model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
                 loss=torch.nn.functional.mse_loss, input_shapes=[[-1, 4]], feature_cols=["features"], label_cols=["label"],
                 batch_size=8, epochs=2, verbose=0, random_seed=3)  # fmt: skip
    return kind(**{**given, **values})


@pytest.mark.parametrize("arguments", [7, 9])
def test_a_step_of_the_programs_own_gets_what_it_takes(tmp_path, arguments):
    heard = tmp_path / "heard"

    def step(model, optimizer, transform_outputs, loss_fn, inputs, labels, weights, *more):
        heard.open("a").write(f"{more}\n")
        optimizer.zero_grad()
        outputs, labels = transform_outputs(model(*inputs), labels)
        loss = loss_fn(outputs, labels, weights)
        loss.backward()
        optimizer.step()
        return outputs, loss

    def of_nine(model, optimizer, transform_outputs, loss_fn, inputs, labels, weights, backward_passes_per_step, batch_idx):
        return step(model, optimizer, transform_outputs, loss_fn, inputs, labels, weights, backward_passes_per_step, batch_idx)

    def of_seven(model, optimizer, transform_outputs, loss_fn, inputs, labels, weights):
        return step(model, optimizer, transform_outputs, loss_fn, inputs, labels, weights)

    told(store_of(tmp_path), train_minibatch_fn=of_nine if arguments == 9 else of_seven, epochs=1).fit_on_parquet()
    seen = [str((1, number)) for number in range(8)] if arguments == 9 else ["()"] * 8
    assert heard.read_text().splitlines() == seen


def test_a_transformation_that_fails_is_told_before_training(tmp_path):
    """What the executors alone may have, it may lack here."""

    class Counted(Here):
        runs = 0

        def run(self, *_args, **_kwargs):
            Counted.runs += 1
            raise InterruptedError

    def wrong(rows):
        return rows.assign(features=rows["no such column"])

    def of_full_batches(rows):
        assert len(rows) == 8
        return rows

    def of_executors(rows):
        import a_module_of_the_executors  # noqa: F401, PLC0415

    store = store_of(tmp_path)
    kept = {}

    def of_itself(rows):
        kept.setdefault("lock", threading.Lock())  # which cannot be sent
        return rows

    with pytest.warns(UserWarning, match="transformation_fn fails with the first batch on the driver: KeyError: 'no such column'"):
        with pytest.raises(InterruptedError):
            told(store, backend=Counted(), transformation_fn=wrong).fit_on_parquet()
    for function in (of_full_batches, of_executors, of_itself):
        with warnings.catch_warnings(record=True) as caught, pytest.raises(InterruptedError):
            warnings.simplefilter("always")
            told(store, backend=Counted(), transformation_fn=function).fit_on_parquet()
        assert not [one for one in caught if "transformation_fn" in str(one.message)]
    assert Counted.runs == 4 and not kept


class OfLengths(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.linear = torch.nn.GRU(1, 3, batch_first=True), torch.nn.Linear(3, 1)

    def forward(self, x, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x.unsqueeze(-1), lengths.long(), batch_first=True, enforce_sorted=False)
        return self.linear(self.rnn(packed)[1][0])


class OfEight(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x.reshape(8, 4))


def log_normal(output, label):
    return -torch.distributions.LogNormal(output, 1.0).log_prob(label).mean()


@pytest.mark.parametrize("net, features, shapes, loss", [
    (OfLengths(), ["features", "length"], [[-1, 4], [-1]], torch.nn.functional.mse_loss),
    (OfEight(4, 1), ["features"], [[-1, 4]], torch.nn.functional.mse_loss),
    (torch.nn.Linear(4, 1), ["features"], [[-1, 4]], log_normal),
])  # fmt: skip
def test_what_refuses_rows_of_zeros_is_tried_on_the_first_batch(tmp_path, net, features, shapes, loss):
    import pyarrow.parquet

    store = store_of(tmp_path)
    file = str(tmp_path / "store/intermediate_train_data/part.parquet")
    table = pyarrow.parquet.read_table(file)
    pyarrow.parquet.write_table(table.append_column("length", [[1 + row % 4 for row in range(64)]]), file)
    values = dict(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), feature_cols=features, input_shapes=shapes)
    assert len(told(store, **values, loss=loss, label_cols=["length"]).fit_on_parquet().getHistory()) == 2
    with pytest.raises(ValueError, match=r"the loss cannot take .* \(length: output \[8, 1\], label \[8, 1\]\)"):
        told(store, **values, loss=torch.nn.NLLLoss(), label_cols=["length"]).fit_on_parquet()


class OfGpu(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x.cuda())


class OfClasses(torch.nn.Embedding):
    def forward(self, x):
        return super().forward(x).squeeze(1)


def of_two_devices(output, label):
    """As a loss says it whose weights are on a GPU."""
    if label.is_floating_point():
        raise RuntimeError("expected scalar type Long but found Float")
    raise RuntimeError("Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!")


def of_all_ranks(output, label):
    return hvd.allreduce(torch.nn.functional.mse_loss(output, label), name="loss") * hvd.size()


def made_by_size():
    return torch.nn.MSELoss() if hvd.size() > 1 else torch.nn.L1Loss()


@pytest.mark.parametrize("values, casts", [
    ({"model": OfGpu(4, 1)}, Casts()),
    ({"loss": of_all_ranks}, Casts()),
    ({"loss": None, "loss_constructors": [made_by_size]}, Casts()),
    ({"loss": of_two_devices}, Casts(True, False)),
    ({"model": OfClasses(2, 1), "feature_cols": ["label"], "input_shapes": [[-1]], "loss": of_all_ranks}, Casts(False, True)),
])  # fmt: skip
def test_what_needs_a_gpu_or_horovod_is_told_of_and_left_to_the_processes(tmp_path, values, casts):
    hvd.shutdown()  # earlier tests have trained in this process
    backend, model = Asked(), values.get("model") or torch.nn.Linear(4, 1)
    values = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), **values}
    kinds = ["float32" if as_float else "they are" for as_float in (casts.features, casts.labels)]
    text = f"cannot be tried on the driver: .*: .*; the processes that train call them with features as {kinds[0]} and labels as {kinds[1]}"
    with pytest.warns(UserWarning, match=text) as caught, pytest.raises(InterruptedError):
        told(store_of(tmp_path), backend=backend, **values).fit_on_parquet()
    assert backend.plan.casts == casts and len([one for one in caught if "on the driver" in str(one.message)]) == 1


def test_only_a_step_that_needs_nine_arguments_gets_nine():
    def decorated(*arguments):
        return len(arguments)

    def with_defaults(model, optimizer, transform_outputs, loss_fn, inputs, labels, weights, clip=1.0, scale=2.0):
        return clip, scale

    def with_names(model, optimizer, transform_outputs, loss_fn, inputs, labels, weights, backward_passes_per_step=1, batch_idx=0):
        return backward_passes_per_step, batch_idx

    calls = [train._of_seven(one, 4)(3, *range(7)) for one in (decorated, with_defaults, with_names)]
    assert calls == [7, (1.0, 2.0), (4, 3)]


def test_more_steps_than_the_data_has_are_done_with_further_orders_of_it(tmp_path):
    heard = tmp_path / "heard"

    def step(model, optimizer, transform_outputs, loss_fn, inputs, labels, weights):
        heard.open("a").write(f"{json.dumps(inputs[0][:, 0].tolist())}\n")
        optimizer.zero_grad()
        return model(*inputs), loss_fn(*transform_outputs(model(*inputs), labels))

    told(store_of(tmp_path, rows=16), train_minibatch_fn=step, train_steps_per_epoch=5).fit_on_parquet()
    seen = [json.loads(line) for line in heard.read_text().splitlines()]
    assert len(seen) == 10
    for begin in range(0, 10, 2):  # each time all rows
        assert len({value for batch in seen[begin : begin + 2] for value in batch}) == 16
    assert seen[0:2] != seen[2:4] != seen[4:6]


def test_labels_have_the_shape_that_the_program_says():
    output, label = torch.zeros(3, 1), torch.zeros(3)
    assert match_of(types.SimpleNamespace(label_shapes=None))(output, [label])[1][0].shape == (3, 1)
    assert match_of(types.SimpleNamespace(label_shapes=[[-1]]))(output, [label])[1][0].shape == (3,)


def test_functions_that_make_losses_get_what_they_name(tmp_path):
    def of_names(model, train_rows, reduction="mean"):
        assert isinstance(model, torch.nn.Linear) and train_rows == 64
        return torch.nn.MSELoss(reduction=reduction)

    def of_any(**known):
        return of_names(known["model"], known["train_rows"])

    for make in (of_names, of_any, torch.nn.MSELoss):
        store = store_of(tmp_path / make.__name__)
        assert len(told(store, loss=None, loss_constructors=[make]).fit_on_parquet().getHistory()) == 2


def test_an_output_may_be_a_dict_which_its_loss_takes(tmp_path):
    class Says(torch.nn.Linear):
        def forward(self, x):
            return {"logits": super().forward(x)}

    def fit(loss):
        net = Says(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        return told(store_of(tmp_path / loss.__name__), model=net, optimizer=optimizer, loss=loss).fit_on_parquet()

    def of_dict(output, label):
        return torch.nn.functional.mse_loss(output["logits"].squeeze(1), label)

    assert len(fit(of_dict).getHistory()) == 2
    with pytest.raises(ValueError, match=r"the loss cannot take the outputs and labels \(label: output dict, label \[8\]\)"):
        fit(torch.nn.functional.mse_loss)


def test_a_loss_gives_a_value_for_each_row_where_rows_have_weights():
    class Mine(torch.nn.Module):
        def forward(self, output, label, reduction="mean"):
            return torch.nn.functional.mse_loss(output, label, reduction=reduction)

    class Blunt(torch.nn.Module):
        def forward(self, output, label):
            return torch.nn.functional.mse_loss(output, label)

    output, label, weights = torch.tensor([[1.0], [3.0]]), torch.zeros(2, 1), torch.tensor([1.0, 0.0])
    for loss in (Mine(), torch.nn.MSELoss(), torch.nn.functional.mse_loss):
        assert total_loss([output], [label], [1.0], [loss], weights).item() == pytest.approx(0.5)
    with pytest.raises(ValueError, match="the loss Blunt has neither an attribute nor an argument `reduction`"):
        total_loss([output], [label], [1.0], [Blunt()], weights)


@pytest.mark.parametrize("values, text", [
    ({"loss_weights": [1.0]}, "loss_weights has 1 numbers for 3 label columns"),
    ({"loss": [torch.nn.functional.mse_loss] * 2}, "loss has 2 functions for 3 label columns"),
    ({"metrics": [[torch.nn.functional.l1_loss] * 2]}, "metrics has 2 functions for 3 label columns"),
])  # fmt: skip
def test_lists_that_would_leave_an_output_out_are_refused(tmp_path, values, text):
    with pytest.raises(ValueError, match=text):
        told(store_of(tmp_path), label_cols=["a", "b", "c"], **values).fit_on_parquet()


def test_a_transformation_may_be_of_a_frame_or_of_a_row():
    def batch():
        return {"x": numpy.arange(6, dtype=numpy.float32).reshape(3, 2), "word": numpy.array(["a", "bb", "ccc"], object)}

    def of_frame(frame):
        frame["length"] = frame["word"].str.len()
        return frame

    def of_row(row):
        if not isinstance(row, dict):
            raise TypeError("a row, as petastorm has it")
        return {"x": row["x"] * 2, "length": len(row["word"])}

    by_frame = pandas_transform(of_frame, removed=["word"])(batch())
    assert by_frame["length"].tolist() == [1, 2, 3] and by_frame["x"].shape == (3, 2)
    transform = pandas_transform(of_row, edited=[("length", numpy.int32, (), False)])
    for _ in range(2):
        by_row = transform(batch())
        assert by_row["x"].tolist() == [[0, 2], [4, 6], [8, 10]]
        assert by_row["length"].tolist() == [1, 2, 3] and by_row["length"].dtype == numpy.int32
    with pytest.raises(KeyError, match="nothing"):
        pandas_transform(lambda frame: frame["nothing"])(batch())


def test_a_subclass_has_parameters_a_backend_and_a_model_of_its_own(tmp_path):
    class Mine(TorchModel):
        pass

    class Vision(TorchEstimator):
        backbone = Param(Params._dummy(), "backbone", "of the network")

        def _get_or_create_backend(self):
            return Here()

        def get_model_class(self):
            return Mine

        def _get_model_kwargs(self, *arguments):
            return {**super()._get_model_kwargs(*arguments), "label_columns": [self.getOrDefault("backbone")]}

    model = told(store_of(tmp_path), Vision, backbone="resnet", backend=None).fit_on_parquet()
    assert type(model) is Mine and model.getLabelColumns() == ["resnet"]
    with pytest.raises(TypeError, match="no parameter 'backbones'; did you mean"):
        Vision(backbones="x", label_col="y")


def test_a_data_module_of_another_kind_is_refused_before_anything_is_started(tmp_path):
    class OfLightning:
        def train_dataloader(self):
            return []

    class OfHorovod:
        def train_data(self):
            return iter(())

    for module in (OfLightning, OfHorovod):
        with pytest.raises(ValueError, match=f"data_module={module.__name__}: a class is needed"):
            told(store_of(tmp_path / module.__name__), data_module=module).fit_on_parquet()


def test_a_run_leaves_a_checkpoint_that_torch_reads(tmp_path):
    store = store_of(tmp_path)
    model = told(store, run_id="run").fit_on_parquet()
    path = f"{store.get_checkpoint_path('run')}/{store.get_checkpoint_filename()}"
    left = torch.load(io.BytesIO(store.read(path)), weights_only=True)
    torch.testing.assert_close(left["model"]["weight"], model.getModel().state_dict()["weight"])
    assert left["optimizer"]["param_groups"][0]["lr"] == 0.1
    assert [entry["epoch"] for entry in told(store, run_id="run", epochs=1).fit_on_parquet().getHistory()] == [2]


def test_data_for_validation_is_used_where_the_program_wants_validation(tmp_path):
    store = store_of(tmp_path, validation=8)
    histories = [told(store, validation=value).fit_on_parquet().getHistory() for value in (None, 0.0, "of a column")]
    assert ["validation" in history[0] for history in histories] == [False, False, True]
    with pytest.raises(ValueError, match="validation=0.1, and there is no data at .*/intermediate_val_data; write it"):
        told(store_of(tmp_path / "other"), validation=0.1).fit_on_parquet()


def test_columns_that_a_fit_does_not_use_may_be_of_any_kind(tmp_path):
    import pyarrow.parquet

    store = store_of(tmp_path, validation=8)
    for part, rows in (("train", 64), ("val", 8)):
        file = str(tmp_path / f"store/intermediate_{part}_data/part.parquet")
        table = pyarrow.parquet.read_table(file)
        pyarrow.parquet.write_table(table.append_column("more", [[{"name": "a"}] * rows]), file)
    assert len(told(store, validation=0.1).fit_on_parquet().getHistory()) == 2
    with pytest.raises(ValueError, match="column 'more'"):
        told(store, feature_cols=None).fit_on_parquet()
    with pytest.raises(ValueError, match="there is no column 'none' in .*, which has features, label, more"):
        told(store, sample_weight_col="none").fit_on_parquet()
    (tmp_path / "store/intermediate_val_data/part.parquet").write_bytes(b"no Parquet")
    assert len(told(store).fit_on_parquet().getHistory()) == 2  # without validation nobody reads it


def test_a_data_module_of_the_programs_own_gives_the_batches(tmp_path):
    heard = tmp_path / "heard"

    class Counts(own_module()):
        def train_data(self, epoch, step):
            heard.open("a").write(f"{epoch} {step}\n")
            return super().train_data(epoch, step)

    history = told(store_of(tmp_path, validation=8), data_module=Counts, validation=0.1).fit_on_parquet().getHistory()
    assert heard.read_text() == "0 0\n1 0\n" and all(entry["validation"]["loss"] > 0 for entry in history)


def test_tensorboards_scalars_of_each_epoch_are_in_the_runs_folder(tmp_path):
    events = pytest.importorskip("tensorboard.compat.proto.event_pb2", reason="tensorboard is not installed here")
    store, metrics = store_of(tmp_path, validation=8), [[torch.nn.functional.l1_loss]]
    history, seen = [], []
    for _ in range(2):  # the second goes on with the first
        history += told(store, run_id="run", metrics=metrics, epochs=1, validation=0.1).fit_on_parquet().getHistory()
    for file in (tmp_path / "store/runs/run/logs").iterdir():
        content = file.read_bytes()
        while content:  # a record is its length, four bytes, what it says, and four bytes
            length = int.from_bytes(content[:8], "little")
            event = events.Event.FromString(content[12 : 12 + length])
            seen += [(value.tag, event.step, pytest.approx(value.simple_value)) for value in event.summary.value]
            content = content[16 + length :]
    known = [
        (f"{begin}/{tag}", entry["epoch"], value)
        for entry in history
        for begin, part in (("train", "train"), ("val", "validation"))
        for tag, value in (("loss", entry[part]["loss"]), *entry[part]["all_metrics"][0].items())
    ]
    assert sorted(seen, key=lambda value: value[:2]) == sorted(known)


def test_a_learning_rate_of_numpy_s_is_kept_as_a_number(tmp_path):
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=numpy.float64(0.1))
    model = told(store_of(tmp_path), model=net, optimizer=optimizer, run_id="run").fit_on_parquet()
    assert model.getOptimizer().param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize("epochs, trained", [(3, [0, 1, 2]), (2, [2, 3])])
def test_a_run_of_an_earlier_release_is_continued_or_if_it_has_its_epochs_trained_further(tmp_path, epochs, trained):
    store = store_of(tmp_path)
    told(store, run_id="run").fit_on_parquet()
    run = tmp_path / "store/runs/run"
    marker = json.loads((run / "checkpoint.json").read_text())
    del marker["begin"], marker["finished"]
    (run / "checkpoint.json").unlink()
    (run / "checkpoint").write_text(json.dumps(marker))  # where the marker was
    history = told(store, run_id="run", epochs=epochs).fit_on_parquet().getHistory()
    assert [entry["epoch"] for entry in history] == trained
    assert (run / "checkpoint.json").exists() and b"model" in (run / "checkpoint").read_bytes()


def test_an_optimizer_of_several_groups_is_saved_beside_its_model():
    """Weights with decay, biases without: their order in the optimizer is not that of the model."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    weights, biases = ([p for name, p in net.named_parameters() if name.endswith(end)] for end in ("weight", "bias"))
    optimizer = torch.optim.SGD([{"params": weights, "weight_decay": 0.1}, {"params": biases}], lr=0.1, momentum=0.9)
    net(torch.ones(1, 2)).backward()
    optimizer.step()
    other = unpacked(packed(net))
    tied = optimizers.tied(other, optimizers.loaded(unpacked(packed(optimizers.saved(net, optimizer)))))
    names = {id(p): name for name, p in other.named_parameters()}
    told = [[names[id(p)] for p in group["params"]] for group in tied.param_groups]
    assert told == [["0.weight", "1.weight", "2.weight"], ["0.bias", "1.bias", "2.bias"]]
    assert all(tied.state[p]["momentum_buffer"].shape == p.shape for p in other.parameters())
    again = optimizers.tied(unpacked(packed(other)), optimizers.loaded(unpacked(packed(optimizers.saved(other, tied)))))
    assert [len(group["params"]) for group in again.param_groups] == [3, 3]
    assert optimizers.loaded(optimizer) is optimizer  # as earlier releases have saved it


@pytest.mark.parametrize("words, message", [
    ({"label_cols": ["label", "features"], "label_shapes": [[-1, 1]], "loss": [torch.nn.MSELoss()] * 2}, "label, features"),
    ({"feature_cols": None, "input_shapes": [[-1, 4], [-1, 4]]}, "features"),
])  # fmt: skip
def test_each_column_needs_its_shape(tmp_path, words, message):
    with pytest.raises(ValueError, match=rf"[12] shapes for [12] columns \({message}\); give a shape for each"):
        told(store_of(tmp_path, rows=16), **words).fit_on_parquet()
