"""The training of one rank by Lightning's Trainer, over torch.distributed's backend `hvd`. Needs no Spark."""

import contextlib
import importlib
import importlib.util
import io
import os
import sys
import tempfile
import types
import warnings
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import numpy
import torch

import horovod.torch as hvd
from horovod.spark.common import fit, orders
from horovod.spark.common.checkpoints import Checkpoints
from horovod.spark.common.run_folder import RunFolder
from horovod.spark.torch import optimizers
from horovod.spark.torch.batches import Casts, Features, tensor_of

# Both names of Lightning are around; their classes are not each other's.
_PACKAGES = ("lightning.pytorch", "pytorch_lightning")

_NO_TENSORFLOW = "tensorboard.compat.notf"

# Arguments of the Trainer that follow from where the ranks run.
OURS = ("accelerator", "devices", "num_nodes", "plugins", "use_distributed_sampler")

# Lightning's names of strategies that DistributedDataParallel over libhvd can follow, and what each says to it.
STRATEGIES: Dict[str, Dict[str, Any]] = {
    "auto": {}, "ddp": {}, "ddp_find_unused_parameters_false": {},
    "ddp_find_unused_parameters_true": {"find_unused_parameters": True},
}  # fmt: skip


@dataclass
class Plan(fit.Plan):
    """All that a rank must know."""

    model: torch.nn.Module
    callbacks: List[Any]
    input_shapes: Sequence[Sequence[int]]
    label_shapes: Optional[Sequence[Sequence[int]]]
    logger: Any
    log_every: int
    profiler: Any
    trainer_args: Dict[str, Any]
    terminate_on_nan: bool
    casts: Casts = field(default_factory=Casts)


def package_of(model: Any) -> str:
    """The package whose LightningModule the model is; empty, where it is none."""
    modules = [base.__module__ for base in type(model).__mro__ if base.__name__ == "LightningModule"]
    for name in _PACKAGES:
        if any(module.startswith(f"{name}.") for module in modules):
            return name
    return ""


def main(store: Any, ticket: orders.Ticket) -> Optional[List[Dict[str, Any]]]:
    """Runs in each rank. The history, on rank 0; the model is in the checkpoint."""
    plan = orders.receive(store, ticket)
    hvd.init()
    with fit.data_of(plan, store, hvd.rank(), hvd.size()) as data:
        return _Fit(plan, store, data).run()


class _Stream(torch.utils.data.IterableDataset):
    """Batches that are read by the data module, for a DataLoader that only hands them on.

    count: how many an epoch has; None: the data module does not say."""

    def __init__(self, batches: Callable[[], Iterator[Dict[str, torch.Tensor]]], count: Optional[int]) -> None:
        self._batches = batches
        self._count = count

    def __iter__(self) -> Iterator[Dict[str, torch.Tensor]]:
        # A generator, because Lightning may ask for the iterator before it knows the epoch of a continued run.
        yield from self._batches()

    def __len__(self) -> int:
        if self._count is None:
            raise TypeError("the data module has no train_steps and val_steps, so the number of batches is not known")
        return self._count


class _Fit:
    """One rank's part of a fit."""

    def __init__(self, plan: Plan, store: Any, data: Any) -> None:
        self.plan = plan
        self.logs: Optional[RunFolder] = None
        self._store = store
        self.checkpoints = Checkpoints(store, plan.run_id, plan.keep_checkpoints)
        self._data = data
        self._features = Features(plan.feature_cols, plan.input_shapes, plan.casts.features)
        weights = [plan.sample_weight_col] if plan.sample_weight_col else []
        shapes = [*(plan.label_shapes or [None] * len(plan.label_cols)), *[None for _ in weights]]
        # Labels keep whole numbers, as class indices are.
        self._others = Features([*plan.label_cols, *weights], shapes, as_float=False)
        self.history: List[Dict[str, Any]] = list(plan.history_in(plan.resume)) if plan.resume else []
        self.epoch = plan.resume["epoch"] if plan.resume else 0  # epochs that are done
        # Steps of the run's fits before this one. Earlier releases' checkpoints do not say them.
        self.steps_before = 0
        if plan.resume:
            self.steps_before = plan.resume.get("steps_before" if plan.has_begun(plan.resume) else "steps", 0)

    def run(self) -> Optional[List[Dict[str, Any]]]:
        plan = self.plan
        if self.epoch >= plan.epochs:
            return self.history if hvd.rank() == 0 else None
        package = importlib.import_module(package_of(plan.model))
        _tell_rank(package)
        with contextlib.ExitStack() as stack:
            if hvd.rank() == 0 and self._store.saving_runs():
                self.logs = stack.enter_context(RunFolder(self._store, plan.run_id, self._store.get_logs_subdir()))
            # With True, the Trainer would have a logger that writes into the working folder.
            logger = self._own_logger(package) if plan.logger is None or plan.logger is True else plan.logger
            self._place_checkpoints(package, stack)
            self._train(package, logger)
        return self.history if hvd.rank() == 0 else None

    def _own_logger(self, package: Any) -> Any:
        """TensorBoard's, which writes into the run's folder of the store; False where there is no such folder or TensorBoard."""
        has_writer = any(importlib.util.find_spec(name) for name in ("tensorboard", "tensorboardX"))
        if not all(hvd.allgather_object(self._store.saving_runs() and has_writer)):
            return False
        # All ranks have one, since Lightning asks all of them where it writes. Only that of rank 0 does.
        folder = self.logs.path if self.logs is not None else ""
        loggers = importlib.import_module(f"{package.__name__}.loggers")
        if "tensorflow" not in sys.modules:
            # TensorBoard's writer would load TensorFlow where it is installed, for seconds and hundreds of MiB. It does not
            # where there is a module of this name.
            sys.modules.setdefault(_NO_TENSORFLOW, types.ModuleType(_NO_TENSORFLOW))
        return loggers.TensorBoardLogger(folder, name="", version="", default_hp_metric=False)

    def _place_checkpoints(self, package: Any, stack: contextlib.ExitStack) -> None:
        """What the program's ModelCheckpoints write on rank 0 comes into the run's folder, unless they have a place."""
        homeless = [
            callback
            for callback in self.plan.callbacks
            if isinstance(callback, package.callbacks.ModelCheckpoint) and callback.dirpath is None
        ]
        if homeless and hvd.rank() == 0 and self._store.saving_runs():
            folder = stack.enter_context(RunFolder(self._store, self.plan.run_id, "lightning"))
            for callback in homeless:
                callback.dirpath = folder.path  # Lightning tells the other ranks

    def _train(self, package: Any, logger: Any) -> None:
        plan = self.plan
        recorder = _recorder(package, self)
        # It comes first, so that what the user's callbacks do when an epoch begins is not of the epoch before.
        trainer = self._trainer(package, [recorder, *plan.callbacks], logger)
        if self.logs is not None and plan.profiler not in (None, "simple") and trainer.profiler.dirpath is None:
            # Without a place some of Lightning's profilers write nothing.
            trainer.profiler.dirpath, trainer.profiler.filename = self.logs.path, trainer.profiler.filename or "profile"
        steps, val_steps = (getattr(self._data, name, None) for name in ("train_steps", "val_steps"))
        loaders = {"train_dataloaders": _loader(lambda: self._training(trainer.current_epoch), steps)}
        if plan.data.validation is not None:
            count = None if val_steps is None else min(val_steps, self._validation_batches())
            loaders["val_dataloaders"] = _loader(self._validation, count)
        # The warning is of several workers of a loader; ours have none.
        warnings.filterwarnings("ignore", "Your `IterableDataset` has `__len__` defined")
        with _file_of(plan.resume) as path:
            trainer.fit(plan.model, **loaders, ckpt_path=path)
        recorder.record(trainer, plan.model)

    def _trainer(self, package: Any, callbacks: List[Any], logger: Any) -> Any:
        plan = self.plan
        on_gpu = plan.use_gpu and torch.cuda.is_available()
        device = hvd.local_rank() % torch.cuda.device_count() if on_gpu else None
        # The run has its checkpoints from the recorder, so the Trainer needs to write none.
        has_callback = any(isinstance(callback, package.callbacks.ModelCheckpoint) for callback in plan.callbacks)
        told: Dict[str, Any] = {
            "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0, **plan.trainer_args,
            "accelerator": "gpu" if on_gpu else "cpu", "devices": [device] if on_gpu else 1,
            "max_epochs": plan.epochs, "accumulate_grad_batches": plan.backward_passes, "logger": logger,
            "log_every_n_steps": plan.log_every, "profiler": plan.profiler, "use_distributed_sampler": False,
            "enable_checkpointing": has_callback and plan.trainer_args.get("enable_checkpointing", True),
        }  # fmt: skip
        told.update(self._limits())
        strategy = told.pop("strategy", "auto")
        if hvd.size() > 1:
            told["strategy"] = _strategy(package, plan.compression, STRATEGIES[strategy])
        return package.Trainer(**told, callbacks=callbacks)

    def _limits(self) -> Dict[str, int]:
        """What the program says of the steps and epochs of a fit, as the Trainer counts: from the first fit of the run on."""
        before = {"max_steps": self.steps_before, "min_steps": self.steps_before, "min_epochs": self.plan.begin}
        told = {name: self.plan.trainer_args.get(name) for name in before}
        return {name: value + before[name] for name, value in told.items() if value is not None and value >= 0}

    def _training(self, epoch: int) -> Iterator[Dict[str, torch.Tensor]]:
        return map(self._tensors, self._data.train_data(epoch, 0))

    def _validation_batches(self) -> int:
        """For how many batches every rank has rows. With one row more a rank could have one more batch than the others."""
        return -(-(self.plan.data.validation.rows // hvd.size()) // self.plan.val_batch_size)

    def _validation(self) -> Iterator[Dict[str, torch.Tensor]]:
        """Each row once, in the same number of batches on all ranks, because a module's validation may have steps of all.

        A row that would be a batch alone joins the one before."""
        last: Optional[Dict[str, Any]] = None
        for number, batch in enumerate(fit.counted(self._data.val_data())):
            if last is not None and number == self._validation_batches():
                last = {name: numpy.concatenate([last[name], values]) for name, values in batch.items()}
                continue
            if last is not None:
                yield self._tensors(last)
            last = batch
        if last is not None:
            yield self._tensors(last)

    def _tensors(self, batch: Dict[str, Any]) -> Dict[str, torch.Tensor]:
        if self.plan.transform is None:
            made = zip(self._features.names, self._features(batch))
            return {**dict(made), **dict(zip(self._others.names, self._others(batch)))}
        known = {**self._features.present(batch), **self._others.present(batch)}
        # What a transformation_fn has added is for the module, too.
        added = {name: values for name, values in batch.items() if name not in known and values.dtype.kind in "biuf"}
        return {**known, **{name: tensor_of(values, name, as_float=False) for name, values in added.items()}}


def _score(package: Any, callbacks: Sequence[Any], metrics: Dict[str, float]) -> Optional[float]:
    """By what an epoch is the best, as the first ModelCheckpoint has it whose `monitor` is a metric: the lower, the better;
    None: it cannot be."""
    for callback in callbacks:
        if isinstance(callback, package.callbacks.ModelCheckpoint) and callback.monitor in metrics:
            value = metrics[callback.monitor]
            return -value if callback.mode == "max" else value
    return metrics.get("val_loss")


def _loader(batches: Callable[[], Iterator[Dict[str, torch.Tensor]]], count: Optional[int]) -> Any:
    return torch.utils.data.DataLoader(_Stream(batches, count), batch_size=None)


def _tell_rank(package: Any) -> None:
    """Lightning's loggers write where this rank is 0, and it would guess the rank from variables of other launchers."""
    importlib.import_module(f"{package.__name__}.utilities.rank_zero").rank_zero_only.rank = hvd.rank()


def _strategy(package: Any, compression: Any, options: Dict[str, Any]) -> Any:
    """DistributedDataParallel on libhvd's process group, with the places that hvdrun gave to the ranks."""
    import horovod.torch.backend  # noqa: F401  makes torch.distributed know "hvd"

    environments = importlib.import_module(f"{package.__name__}.plugins.environments")

    class Environment(environments.LightningEnvironment):
        """Ranks are there already, and each of them knows its place."""

        creates_processes_externally = True
        main_address = property(lambda self: os.environ["MASTER_ADDR"])
        main_port = property(lambda self: int(os.environ["MASTER_PORT"]))

        def world_size(self) -> int:
            return hvd.size()

        def global_rank(self) -> int:
            return hvd.rank()

        def local_rank(self) -> int:
            return hvd.local_rank()

        def node_rank(self) -> int:
            return hvd.cross_rank()

        def set_world_size(self, size: int) -> None:
            pass  # a Trainer of one device a process would say 1

        def set_global_rank(self, rank: int) -> None:
            pass

    class Strategy(package.strategies.DDPStrategy):
        def set_world_ranks(self) -> None:
            """Lightning would compute the ranks of equally filled hosts; Spark's are not."""
            _tell_rank(package)

        global_rank = property(lambda self: hvd.rank(), lambda self, rank: None)
        world_size = property(lambda self: hvd.size())
        local_rank = property(lambda self: hvd.local_rank(), lambda self, rank: None)
        # Each Trainer is told of one device, that of its own process.
        root_device = property(lambda self: self.parallel_devices[0])

    hook = {} if compression in (None, hvd.Compression.none) else {"ddp_comm_hook": _hook_of(compression)}
    return Strategy(cluster_environment=Environment(), process_group_backend="hvd", **hook, **options)


def _hook_of(compression: Any) -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    if compression is hvd.Compression.fp16:
        return default_hooks.fp16_compress_hook
    raise ValueError(f"gradient_compression={compression!r}: with Lightning it is Compression.none or Compression.fp16")


@contextlib.contextmanager
def _file_of(resume: Optional[Dict[str, Any]]) -> Iterator[Optional[str]]:
    """Lightning reads a checkpoint from a file; this one is there as long as the context."""
    if not resume:
        yield None
        return
    with tempfile.NamedTemporaryFile(prefix="hvd-lightning-", suffix=".ckpt") as file:
        file.write(resume["lightning"].numpy().tobytes())
        file.flush()
        yield file.name


def _recorder(package: Any, fitting: _Fit) -> Any:
    """A callback that keeps the history and writes the checkpoints.

    An epoch is over for its schedulers and all callbacks when the next one begins, so its checkpoint is written then,
    and that of the last epoch after the end."""
    plan = fitting.plan

    class Recorder(package.Callback):
        def __init__(self) -> None:
            self._batches = 0
            self._loss = [0.0, 0.0]  # how many, and their sum
            self._rows = 0
            self._cycles: Dict[int, int] = {}  # places of the schedulers of so many steps, and how many the run has taken

        def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: Dict[str, Any]) -> None:
            if not plan.has_begun(plan.resume):
                # An EarlyStopping of the fit before would end this one too, and the best of other data is not this one's.
                checkpoint["callbacks"] = {}
                states = checkpoint["lr_schedulers"]
                self._cycles = {place: state["last_epoch"] for place, state in enumerate(states) if "total_steps" in state}
                for place in self._cycles:
                    states[place] = {}  # which leaves the scheduler as it was made

        def on_train_start(self, trainer: Any, module: Any) -> None:
            for place, done in self._cycles.items():
                _go_on_in_cycle(trainer.lr_scheduler_configs[place].scheduler, done)
            _multiply_rates(trainer, hvd.size())

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            self.record(trainer, module)
            self._batches, self._loss, self._rows = 0, [0.0, 0.0], 0
            # The random numbers of an epoch depend on nothing before it, so a continued run draws the same.
            torch.manual_seed(hash((plan.seed, trainer.current_epoch, hvd.rank())) % (1 << 63))

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
            self._batches += 1
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            if loss is not None:
                # Lightning has divided it, so that the gradients of several batches are their average.
                parts = trainer.accumulate_grad_batches if module.automatic_optimization else 1
                self._loss = [self._loss[0] + 1, self._loss[1] + loss.detach().double() * parts]
            if plan.terminate_on_nan:
                _check_finite(module, loss, f"epoch {trainer.current_epoch}, batch {self._batches - 1}")

        def on_validation_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, *_: Any) -> None:
            self._rows += len(next(iter(batch.values())))

        def record(self, trainer: Any, module: Any) -> None:
            """Of the epoch that has ended, if one has; all ranks call it at the same point."""
            if not self._batches:  # not the losses, which a rank may lack: what follows is a step of all ranks
                return
            metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
            told = hvd.allgather_object((float(self._loss[0]), float(self._loss[1]), self._rows, metrics))
            losses = sum(rank[0] for rank in told)
            train = {"loss": sum(rank[1] for rank in told) / losses} if losses else {}
            metrics = _averages([(rank[3], rank[2]) for rank in told])
            entry = {"epoch": fitting.epoch, "train": train, "metrics": metrics}
            fitting.history.append(entry)
            fitting.epoch += 1
            if hvd.rank() == 0 and plan.verbose:
                print(entry, flush=True)
            self._save(trainer, module, _score(package, plan.callbacks, entry["metrics"]))

        def _save(self, trainer: Any, module: Any, score: Optional[float]) -> None:
            _multiply_rates(trainer, 1 / hvd.size())
            with tempfile.TemporaryDirectory(prefix="hvd-lightning-") as folder:
                path = os.path.join(folder, "checkpoint")
                trainer.save_checkpoint(path)  # a step of all ranks; rank 0 writes
                _multiply_rates(trainer, hvd.size())
                if hvd.rank() != 0:
                    return
                with open(path, "rb") as file:
                    content = file.read()
            # The driver opens only what is plain. What a callback of the user's keeps, Lightning reads in the ranks.
            state = {
                "model": {name: value.cpu() for name, value in module.state_dict().items() if torch.is_tensor(value)},
                "lightning": torch.frombuffer(bytearray(content), dtype=torch.uint8), "epoch": fitting.epoch,
                "history": fitting.history, "seed": plan.seed, "size": hvd.size(), "rows": plan.data.train.rows,
                "identity": plan.data.train.identity, "steps": trainer.global_step, "steps_before": fitting.steps_before,
            }  # fmt: skip
            file = io.BytesIO()
            torch.save(state, file)
            fitting.checkpoints.save(file.getvalue(), fitting.epoch, 0, score)
            if fitting.logs is not None:
                fitting.logs.send()

    return Recorder()


def _check_finite(module: Any, loss: Optional[torch.Tensor], when: str) -> None:
    """ValueError where the loss or a parameter is infinite or no number. The Trainer of Lightning 1 had this itself."""
    values = {"the loss": loss.detach()} if loss is not None else {}
    values.update((f"the parameter {name}", parameter.detach()) for name, parameter in module.named_parameters())
    wrong = [name for name, value in values.items() if not torch.isfinite(value).all()]
    if wrong:
        raise ValueError(f"terminate_on_nan: after {when} on rank {hvd.rank()}, {', '.join(wrong)} is not finite")


def _averages(told: List[Any]) -> Dict[str, float]:
    """Of (metrics, rows of validation) of the ranks. A rank without such rows has no metrics of them that count."""
    averages = {}
    for name in sorted({name for metrics, _ in told for name in metrics}):
        weighed = [(metrics[name], rows) for metrics, rows in told if name in metrics]
        count = sum(rows for _, rows in weighed)
        if count:
            averages[name] = sum(value * rows for value, rows in weighed if rows) / count
        else:
            averages[name] = sum(value for value, _ in weighed) / len(weighed)
    return averages


# What schedulers call the rates that they know. OneCycleLR keeps its own in the optimizer.
_RATES = ("base_lrs", "max_lrs", "min_lrs", "default_min_lr", "eta_min")


def _multiply_rates(trainer: Any, factor: float) -> None:
    """Of the optimizers, and of the schedulers, so that every rate of the training is so many times what it was."""
    for optimizer in trainer.optimizers:
        optimizers.multiply_rate(optimizer, factor)
    for config in trainer.lr_scheduler_configs:
        _multiply_rates_of(config.scheduler, factor)


def _go_on_in_cycle(scheduler: Any, done: int) -> None:
    """Of OneCycleLR, which refuses more steps than it was made for: where it has none left, it begins again."""
    done = done if done < scheduler.total_steps else 0
    scheduler.load_state_dict({"last_epoch": done - 1, "_step_count": done})
    scheduler.step()


def _multiply_rates_of(scheduler: Any, factor: float) -> None:
    for name in _RATES:
        rates = getattr(scheduler, name, None)
        if rates is not None:
            is_list = isinstance(rates, (list, tuple))
            setattr(scheduler, name, [rate * factor for rate in rates] if is_list else rates * factor)
    for inner in getattr(scheduler, "_schedulers", ()):  # of SequentialLR and ChainedScheduler
        _multiply_rates_of(inner, factor)
