"""horovod.spark.lightning: what modules may do in a step. The data is Parquet that pyarrow writes, so Spark is not started."""

import csv
import os
import sys
import types

import pytest
import torch
from estimator_helpers import Here, Lost, own_module, store_of

lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed here")
pytest.importorskip("pyspark", reason="pyspark is not installed here")

from horovod.spark.common.backend import LocalBackend  # noqa: E402
from horovod.spark.common.checkpoints import Checkpoints  # noqa: E402
from horovod.spark.lightning import TorchEstimator, train  # noqa: E402
from horovod.spark.lightning.legacy import to_lightning_module  # noqa: E402
from horovod.spark.torch import TorchEstimator as PlainEstimator  # noqa: E402
from horovod.spark.torch.checkpointed import opened  # noqa: E402

LOSS = 3.0  # what each step says, whatever the weights are


def fitted(store, module, kind=TorchEstimator, **values):
    told = dict(backend=Here(), store=store, model=module, input_shapes=[[-1, 4]], feature_cols=["features"],
                label_cols=["label"], batch_size=8, epochs=2, verbose=0, random_seed=3)  # fmt: skip
    told["validation"] = 0.1 if store.exists(store.get_val_data_path()) else None
    return kind(**{**told, **values}).fit_on_parquet()


def make_module(step, is_automatic=True, schedule=None):
    """`step`: gets the module, a loss to be returned and the batch's number; what it returns the training step does."""

    # Defined inside of a function, a class travels by value.
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.linear, self.other = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
            self.automatic_optimization = is_automatic

        def forward(self, x):
            return self.linear(x)

        def training_step(self, batch, number):
            self.batch = batch
            out = self(batch["features"]).sum()
            return step(self, out - out.detach() + LOSS, number)

        def validation_step(self, batch, number):
            rows = float(len(batch["label"]))
            self.log("rows", rows, on_step=True, on_epoch=True, sync_dist=True, reduce_fx="sum", batch_size=1)

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
            return schedule(self, optimizer) if schedule else optimizer

    torch.manual_seed(1)
    return Module()


def step_by_hand(module, loss, number):
    optimizer = module.optimizers()
    optimizer.zero_grad()
    module.manual_backward(loss)
    optimizer.step()


def step_that_says_no_loss(module, loss, number):
    step_by_hand(module, loss, number)
    return {"other": loss.detach()}


@pytest.mark.parametrize("step, is_automatic", [
    (step_by_hand, False),
    (step_that_says_no_loss, False),
    (lambda module, loss, number: None, True),
])  # fmt: skip
def test_steps_without_a_loss_are_epochs_all_the_same(tmp_path, step, is_automatic):
    model = fitted(store_of(tmp_path), make_module(step, is_automatic))
    assert model.getHistory() == [{"epoch": epoch, "train": {}, "metrics": {}} for epoch in range(2)]


@pytest.mark.parametrize(("step", "wrong"), [
    (lambda module, loss, number: loss * (float("nan") if number == 2 else 1), "the loss"),
    (lambda module, loss, number: loss if number != 2 else [module.other.bias.data.fill_(float("inf")), loss][1], "the parameter other.bias"),
])  # fmt: skip
def test_training_ends_at_the_batch_that_leaves_no_finite_numbers_if_it_is_to(tmp_path, step, wrong):
    module = make_module(step)
    with pytest.raises(ValueError, match=f"terminate_on_nan: after epoch 0, batch 2 on rank 0, {wrong}"):
        fitted(store_of(tmp_path), module, terminate_on_nan=True)
    assert len(fitted(store_of(tmp_path / "other"), make_module(step)).getHistory()) == 2
    told = fitted(store_of(tmp_path / "third"), make_module(lambda module, loss, number: loss), terminate_on_nan=True)
    assert len(told.getHistory()) == 2


def test_the_loss_of_the_history_is_what_steps_returned_however_many_make_one_step_of_the_optimizer(tmp_path):
    model = fitted(store_of(tmp_path), make_module(lambda module, loss, number: loss), backward_passes_per_step=4)
    assert [entry["train"]["loss"] for entry in model.getHistory()] == [LOSS] * 2


def test_fewer_rows_of_validation_than_processes_are_refused_before_anything_is_started(tmp_path):
    with pytest.raises(ValueError, match="1 rows for validation are fewer than the 2 processes; raise validation"):
        fitted(store_of(tmp_path, validation=1), make_module(step_by_hand, False), backend=LocalBackend(2))


def test_two_processes_may_lack_losses_leave_parameters_unused_ask_for_the_length_and_log(tmp_path):
    def step(module, loss, number):
        module.logger.experiment.log_metrics({"mine": 1.0}, number)
        step_by_hand(module, loss, number)
        module.lr_schedulers().step()
        return loss if module.global_rank == 0 else None

    def schedule(module, optimizer):
        steps = module.trainer.estimated_stepping_batches
        if steps != 4:
            raise ValueError(f"{steps} steps, not the 2 of each of 2 epochs")
        return [optimizer], [torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps)]

    model = fitted(
        store_of(tmp_path, validation=17), make_module(step, False, schedule), backend=LocalBackend(2),
        logger=lightning.loggers.CSVLogger(str(tmp_path), name="logs"), log_every_n_steps=1,
        callbacks=[lightning.callbacks.LearningRateMonitor("step")],
        trainer_args={"strategy": "ddp_find_unused_parameters_true", "limit_train_batches": 0.5, "val_check_interval": 0.5},
    )  # fmt: skip
    assert [entry["train"]["loss"] for entry in model.getHistory()] == [LOSS] * 2
    history = model.getHistory()
    assert [entry["metrics"]["rows_epoch"] for entry in history] == [17] * 2  # 8 on one, and 9 on the other
    assert history["rows_epoch"] == history.get("rows_epoch") == dict(history)["rows_epoch"] == 17  # as of Horovod's dict
    assert "rows_epoch" in history and "loss" not in history and history[0] in history and history.get("loss", 1) == 1
    with pytest.raises(KeyError, match="loss"):
        history["loss"]
    assert os.listdir(tmp_path / "logs") == ["version_0"]
    with open(tmp_path / "logs/version_0/metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows if row["mine"]] == ["0", "1"] * 2
    rates = [float(row["lr-SGD"]) for row in rows if row["lr-SGD"]]
    assert 0.1 < max(rates) <= 0.2  # twice what one process has


def test_a_model_checkpoint_says_which_epoch_is_the_best_and_its_files_are_in_the_runs_folder(tmp_path):
    store = store_of(tmp_path, validation=8)

    def step(module, loss, number):
        module.linear.weight.data.fill_(module.current_epoch)
        module.log("mine", float(module.current_epoch == 1))
        return loss

    best = lightning.callbacks.ModelCheckpoint(monitor="mine", mode="max", filename="at-{epoch}")
    model = fitted(store, make_module(step), run_id="run", epochs=3, backend=LocalBackend(2), callbacks=[best],
                   trainer_args={"strategy": "ddp_find_unused_parameters_true"})  # fmt: skip
    assert model.getModel().linear.weight.round().tolist() == [[1.0] * 4]  # near what it was set to in that epoch
    assert os.listdir(tmp_path / "store/runs/run/lightning") == ["at-epoch=1.ckpt"]


def test_what_a_transformation_makes_of_a_row_reaches_the_module(tmp_path):
    def of_row(row):
        return {"twice": row["features"].astype("float32") * 2, "label": int(row["label"])}

    seen = make_module(lambda module, loss, number: loss)

    def training_step(batch, *_):
        assert sorted(batch) == ["label", "twice"] and batch["twice"].shape == (8, 4)
        return seen(batch["twice"]).sum()

    seen.training_step = training_step
    model = fitted(store_of(tmp_path), seen, transformation_fn=of_row, epochs=1)
    assert len(model.getHistory()) == 1


@pytest.mark.parametrize("forward, kind", [
    (None, torch.int64),
    (lambda self, batch: self.linear(batch["features"]), torch.int64),
    (lambda self, x: x + 1, torch.int64),
    (lambda self, x: self.linear(x.repeat(4, 1).T), torch.float32),
])  # fmt: skip
def test_whole_numbers_stay_so_but_where_forward_takes_floats_alone_and_it_need_not_take_columns(tmp_path, forward, kind):
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def training_step(self, batch, number):
            assert batch["label"].dtype == kind
            return self.linear(batch["features"]).square().sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    if forward is not None:
        Module.forward = forward
    told = dict(feature_cols=["label"], label_cols=["features"], epochs=1)
    assert len(fitted(store_of(tmp_path), Module(), input_shapes=[[-1]], **told).getHistory()) == 1
    with pytest.raises(ValueError, match="'label' has 1 values a row"):
        fitted(store_of(tmp_path / "other"), Module(), input_shapes=[[-1, 2]], **told)


def test_what_a_profiler_writes_is_in_the_runs_folder(tmp_path):
    store = store_of(tmp_path)
    fitted(store, make_module(lambda module, loss, number: loss), run_id="run", profiler="advanced")
    files = os.listdir(tmp_path / "store/runs/run/logs")
    assert [name for name in files if name.startswith("fit-profile")], files


def test_without_a_logger_tensorboards_files_are_in_the_runs_folder(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed here")
    store = store_of(tmp_path, validation=8)

    def step(module, loss, number):
        module.log("mine", 1.0)
        if module.global_step:
            (tmp_path / f"loaded{module.global_rank}").write_text(str("tensorflow" in sys.modules))
        return loss

    fitted(store, make_module(step), run_id="run", backend=LocalBackend(2), log_every_n_steps=1,
           trainer_args={"strategy": "ddp_find_unused_parameters_true"})  # fmt: skip
    logs = store.get_localized_path(store.get_logs_path("run"))
    assert [name.split(".")[0] for name in sorted(os.listdir(logs))] == ["events", "hparams"]
    assert b"mine" in b"".join((tmp_path / "store/runs/run/logs" / name).read_bytes() for name in os.listdir(logs))
    assert (tmp_path / "loaded0").read_text() == "False"  # TensorBoard's writer needs no TensorFlow


def test_a_plain_module_is_trained_with_its_optimizer_and_loss_as_without_lightning(tmp_path):
    net = torch.nn.Linear(4, 2)
    # This loss takes no float32 for classes.
    told = dict(optimizer=torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5), loss=torch.nn.functional.cross_entropy)
    store = store_of(tmp_path, validation=8)
    model, other = (fitted(store, net, kind, **told) for kind in (TorchEstimator, PlainEstimator))
    torch.testing.assert_close(model.getModel().state_dict(), other.getModel().state_dict())
    assert model.getHistory()["val_loss"] == pytest.approx(other.getHistory()[-1]["validation"]["loss"])
    with pytest.raises(ValueError, match="leave train_minibatch_fn out; horovod.spark.torch.TorchEstimator takes it"):
        fitted(store, net, train_minibatch_fn=print, **told)


def test_a_module_made_for_lightning_weighs_outputs_and_rows():
    def both(x):
        return x, 3 * x

    module = to_lightning_module(model=both, optimizer=None, loss_fns=[torch.nn.L1Loss()], loss_weights=[1.0, 0.5],
                                 feature_cols=["x"], label_cols=["y", "z"], sample_weights_col="w", validation=0.1)  # fmt: skip
    batch = {"x": torch.tensor([1, 2]), "y": torch.tensor([0, 0]), "z": torch.tensor([[0], [0]]), "w": torch.tensor([1, 3])}
    assert module._step(batch) == (1 + 2 * 3) / 2 + 0.5 * (3 + 6 * 3) / 2


def test_an_argument_of_the_trainer_counts_before_the_estimators_parameter(tmp_path):
    class Counts(lightning.Callback):
        def __init__(self, name):
            self.name = name

        def on_fit_end(self, trainer, module):
            told = (trainer.accumulate_grad_batches, trainer.log_every_n_steps, trainer.global_step, len(trainer.loggers))
            (tmp_path / self.name).write_text(repr(told))

    args = dict(max_epochs=3, accumulate_grad_batches=4, log_every_n_steps=7, callbacks=Counts("two"), profiler="simple",
                logger=False, enable_checkpointing=True)  # fmt: skip
    model = fitted(store_of(tmp_path), make_module(lambda module, loss, number: loss), callbacks=[Counts("one")],
                   backward_passes_per_step=2, logger=lightning.loggers.CSVLogger(str(tmp_path)), trainer_args=args)  # fmt: skip
    assert len(model.getHistory()) == 3
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text() == "(4, 7, 6, 0)"  # two steps in each epoch


@pytest.mark.parametrize("args, said", [
    ({"strategy": "fsdp"}, "strategy='fsdp' is none of auto, ddp, .*: the estimator trains with Distributed"),
    ({"progress_bar_refresh_rate": 1, "gpus": 1}, "the Trainer of this release of lightning has no progress_bar_refresh_rate, gpus; leave"),
])  # fmt: skip
def test_what_the_trainer_cannot_be_told_is_refused_before_anything_is_started(tmp_path, args, said):
    with pytest.raises(ValueError, match=said):
        fitted(store_of(tmp_path), make_module(step_by_hand, False), trainer_args=args)
    net = torch.nn.Linear(4, 1)
    plain = dict(optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=torch.nn.L1Loss())
    with pytest.raises(ValueError, match=said):
        fitted(store_of(tmp_path / "plain"), net, trainer_args=args, **plain)


def test_a_data_module_of_the_programs_own_gives_the_batches(tmp_path):
    model = fitted(store_of(tmp_path, validation=8), make_module(lambda module, loss, number: loss), data_module=own_module())
    assert [entry["metrics"]["rows_epoch"] for entry in model.getHistory()] == [8] * 2


def test_a_run_whose_length_was_asked_for_is_continued_at_its_epoch(tmp_path):
    def schedule(module, optimizer):
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, module.trainer.estimated_stepping_batches)]

    def step(module, loss, number):
        return module(module.batch["features"]).square().mean()

    store = store_of(tmp_path)
    module = make_module(step, schedule=schedule)
    whole = fitted(store, module)
    with pytest.raises(RuntimeError, match="rank 0 was killed"):
        fitted(store, module, run_id="run", epochs=1, backend=Lost(Here()))
    continued = fitted(store, module, run_id="run")
    assert continued.getHistory() == whole.getHistory()


class Stops(lightning.Callback):
    def on_train_epoch_end(self, trainer, module):
        trainer.should_stop = True


def test_steps_and_epochs_that_the_trainer_is_told_are_those_of_each_fit_of_a_run(tmp_path):
    store, module = store_of(tmp_path), make_module(lambda module, loss, number: loss)
    for fits in (1, 2):
        fitted(store, module, run_id="steps", trainer_args={"max_steps": 5})
        assert opened(Checkpoints(store, "steps").load())["steps"] == 5 * fits
    for _ in range(2):
        model = fitted(store, module, run_id="epochs", epochs=9, callbacks=[Stops()], trainer_args={"min_epochs": 2})
        assert len(model.getHistory()) == 2


@pytest.mark.parametrize("steps, again", [(lambda trainer: 8, 0.02), (lambda trainer: trainer.estimated_stepping_batches, 0.5)])
def test_a_schedule_of_one_fits_steps_begins_again_in_the_next(tmp_path, steps, again):
    class Rates(lightning.Callback):
        def on_train_batch_start(self, trainer, module, *_):
            with open(tmp_path / "rates", "a") as file:
                print(trainer.optimizers[0].param_groups[0]["lr"], file=file)

    def schedule(module, optimizer):
        cycle = schedulers.OneCycleLR(optimizer, 0.5, total_steps=steps(module.trainer), pct_start=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": cycle, "interval": "step"}}

    store = store_of(tmp_path)
    for _ in range(2):
        fitted(store, make_module(lambda module, loss, number: loss, schedule=schedule), run_id="run", epochs=1, callbacks=[Rates()])
    rates = [float(line) for line in (tmp_path / "rates").read_text().split()]
    assert len(rates) == 16 and rates[0] == pytest.approx(0.02)
    assert rates[8] == pytest.approx(again, rel=0.1) and rates[15] < 0.1


schedulers = torch.optim.lr_scheduler


@pytest.mark.parametrize("make", [
    lambda optimizer: schedulers.OneCycleLR(optimizer, max_lr=0.5, total_steps=8),
    lambda optimizer: schedulers.CyclicLR(optimizer, base_lr=0.01, max_lr=0.1, step_size_up=2),
    lambda optimizer: schedulers.CosineAnnealingLR(optimizer, 8, eta_min=0.01),
    lambda optimizer: schedulers.ReduceLROnPlateau(optimizer, patience=0, min_lr=0.02),
    lambda optimizer: schedulers.SequentialLR(
        optimizer, [schedulers.LinearLR(optimizer, 0.1, total_iters=2), schedulers.StepLR(optimizer, 2)], [3]),
    lambda optimizer: schedulers.ChainedScheduler(
        [schedulers.LambdaLR(optimizer, lambda epoch: 1.0 / (epoch + 1)), schedulers.ExponentialLR(optimizer, 0.9)]),
])  # fmt: skip
def test_every_rate_of_a_schedule_is_multiplied(make):
    def rates(factor):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
        scheduler = make(optimizer)
        train._multiply_rates(types.SimpleNamespace(
            optimizers=[optimizer], lr_scheduler_configs=[types.SimpleNamespace(scheduler=scheduler)]), factor)  # fmt: skip
        for _ in range(7):
            yield optimizer.param_groups[0]["lr"]
            optimizer.step()
            scheduler.step(*[1.0] * isinstance(scheduler, schedulers.ReduceLROnPlateau))

    assert list(rates(4)) == pytest.approx([4 * rate for rate in rates(1)])
