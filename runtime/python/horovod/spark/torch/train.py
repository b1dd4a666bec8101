"""The training of one rank: what TorchEstimator sends to the ranks. Uses horovod.torch, and no Spark."""

import inspect
import io
import multiprocessing
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

import horovod.torch as hvd
from horovod.spark.common import fit, orders
from horovod.spark.common.checkpoints import Checkpoints
from horovod.spark.torch import optimizers
from horovod.spark.torch.batches import Batches, Casts, match_of
from horovod.spark.torch.board import board
from horovod.spark.torch.losses import Sums, losses_of, total_loss

# The number of steps between lines of progress, with verbose=2.
_LINE_EVERY = 100


@dataclass
class Plan(fit.Plan):
    """All that a rank must know."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    losses: Sequence[Callable[..., torch.Tensor]]
    loss_constructors: Sequence[Callable[..., Any]]
    loss_weights: Sequence[float]
    metrics: Sequence[Sequence[Callable[..., torch.Tensor]]]
    minibatch: Optional[Callable[..., Tuple[Any, torch.Tensor]]]
    input_shapes: Sequence[Sequence[int]]
    label_shapes: Optional[Sequence[Sequence[int]]]
    mp_start_method: Optional[str]
    checkpoint_every: Optional[int]
    casts: Casts = field(default_factory=Casts)


def main(store: Any, ticket: orders.Ticket) -> Optional[List[Dict[str, Any]]]:
    """Runs in each rank. The history, on rank 0; the model is in the checkpoint."""
    plan = orders.receive(store, ticket)
    if plan.mp_start_method:
        multiprocessing.set_start_method(plan.mp_start_method, force=True)
    hvd.init()
    with fit.data_of(plan, store, hvd.rank(), hvd.size()) as data:
        return Trainer(plan, store, data).run()


def device_of(plan: Plan) -> torch.device:
    if not (plan.use_gpu and torch.cuda.is_available()):
        return torch.device("cpu")
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def _of_seven(function: Callable[..., Any], backward_passes: int) -> Callable[..., Any]:
    """A train_minibatch_fn, called with the step's number before its arguments. Since Horovod 0.26 it gets two more."""
    told = inspect.signature(function).parameters
    needed = [name for name, one in told.items() if one.default is one.empty and one.kind <= one.POSITIONAL_OR_KEYWORD]
    takes_nine = len(needed) == 9 or {"backward_passes_per_step", "batch_idx"} <= set(told)

    def call(step: int, *arguments: Any) -> Any:
        return function(*arguments, *((backward_passes, step) if takes_nine else ()))

    return call


class Trainer:
    """One rank's part of a fit."""

    def __init__(self, plan: Plan, store: Any, data: Any) -> None:
        self._plan = plan
        self._device = device_of(plan)
        # All ranks have the same bytes of the model, so nothing is broadcast.
        self._model = plan.model
        optimizer = optimizers.tied(plan.model, plan.optimizer)
        self._history: List[Dict[str, Any]] = []
        self._epoch, self._step = 0, 0
        self._model.to(self._device)
        if plan.resume is not None:
            self._continue_from(plan.resume, optimizer)
        elif optimizer.state:
            optimizer.load_state_dict(optimizer.state_dict())  # which follows the parameters to their device
        optimizers.multiply_rate(optimizer, hvd.size())
        self._optimizer = hvd.DistributedOptimizer(
            optimizer, named_parameters=self._model.named_parameters(),
            compression=plan.compression or hvd.Compression.none, backward_passes_per_step=plan.backward_passes,
        )  # fmt: skip
        self._losses = self._on_device(losses_of(plan))
        self._metrics = [self._on_device(group) for group in plan.metrics]
        self._batches = Batches(plan, plan.casts, self._device)
        self._data = data
        self._store = store
        self._checkpoints = Checkpoints(store, plan.run_id, plan.keep_checkpoints)
        self._match = match_of(plan)
        self._minibatch = self._default_minibatch if plan.minibatch is None else _of_seven(plan.minibatch, plan.backward_passes)
        self._passes = 0

    def _on_device(self, functions: Sequence[Any]) -> List[Any]:
        """Those that are modules may hold tensors, as the weights of classes."""
        return [function.to(self._device) if isinstance(function, torch.nn.Module) else function for function in functions]

    def _continue_from(self, state: Dict[str, Any], optimizer: torch.optim.Optimizer) -> None:
        try:
            self._model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"run_id={self._plan.run_id!r} exists, and its checkpoint is of another model or optimizer; give a run_id of "
                f"its own to this one: {error}"
            ) from error
        self._history = list(self._plan.history_in(state))
        self._epoch, self._step = state["epoch"], state["step"]
        # Where this differs a step has other rows, so an epoch that was interrupted starts again.
        if self._step > 0 and any(state.get(name, value) != value for name, value in self._order().items()):
            self._step = 0
            self._tell(1, f"epoch {self._epoch} starts again, because its batches are others now")

    def _order(self) -> Dict[str, Any]:
        """What decides which rows a step has."""
        plan = self._plan
        return {"size": hvd.size(), "identity": plan.data.train.identity, "batch": plan.batch_size,
                "train_steps": plan.train_steps, "shuffle": plan.shuffle}  # fmt: skip

    def run(self) -> Optional[List[Dict[str, Any]]]:
        with board(self._store, self._plan.run_id) as write:
            while self._epoch < self._plan.epochs:
                entry: Dict[str, Any] = {"epoch": self._epoch, "train": self._train_epoch()}
                if self._plan.data.validation is not None:
                    entry["validation"] = self._validate()
                self._history.append(entry)
                self._tell(1, entry)
                self._epoch, self._step = self._epoch + 1, 0
                self._save(entry.get("validation", {}).get("loss"))
                write(entry)
        return self._history if hvd.rank() == 0 else None

    def _tell(self, verbose: int, what: Any) -> None:
        if hvd.rank() == 0 and self._plan.verbose >= verbose:
            print(what, flush=True)

    def _sums(self) -> Sums:
        return Sums(self._metrics, self._plan.label_cols, self._device)

    def _averages(self, sums: Sums) -> Dict[str, Any]:
        return sums.averages(lambda values: hvd.allreduce(values, op=hvd.Sum, name="estimator.sums"))

    def _train_epoch(self) -> Dict[str, Any]:
        plan = self._plan
        # The random numbers of an epoch depend on nothing before it, so a continued run draws the same.
        torch.manual_seed(hash((plan.seed, self._epoch, hvd.rank())) % (1 << 63))
        self._model.train()
        sums = self._sums()
        self._passes = 0
        for batch in self._data.train_data(self._epoch, self._step):
            inputs, labels, weights = self._batches(batch)
            outputs, loss = self._minibatch(
                self._step, self._model, self._optimizer, self._match, self._loss, inputs, labels, weights
            )
            outputs, labels = self._match(outputs, labels)
            sums.add(loss, outputs, labels, 1.0)
            self._step += 1
            if self._step % _LINE_EVERY == 0 and plan.verbose >= 2:
                self._tell(2, f"epoch {self._epoch} step {self._step}: loss {loss.item():.6g} on rank 0")
            every = plan.checkpoint_every
            if every and self._step % every == 0:
                self._save(None)
        return self._averages(sums)

    def _loss(self, outputs: Any, labels: Any, weights: Optional[torch.Tensor] = None) -> torch.Tensor:
        return total_loss(outputs, labels, self._plan.loss_weights, self._losses, weights)

    def _default_minibatch(
        self, _step: int, model: Any, optimizer: Any, match: Any, loss_of: Any, inputs: Any, labels: Any, weights: Any
    ) -> Tuple[Any, torch.Tensor]:
        if self._passes == 0:
            optimizer.zero_grad()
        outputs, labels = match(model(*inputs), labels)
        loss = loss_of(outputs, labels, weights)
        loss.backward()
        self._passes += 1
        if self._passes == self._plan.backward_passes:
            optimizer.step()
            self._passes = 0
        return outputs, loss

    @torch.no_grad()
    def _validate(self) -> Dict[str, Any]:
        self._model.eval()
        sums = self._sums()
        for batch in fit.counted(self._data.val_data()):
            inputs, labels, weights = self._batches(batch)
            outputs, labels = self._match(self._model(*inputs), labels)
            sums.add(self._loss(outputs, labels, weights), outputs, labels, len(next(iter(batch.values()))))
        return self._averages(sums)

    def _save(self, score: Optional[float]) -> None:
        if hvd.rank() != 0:
            return
        plan = self._plan
        state = {
            "model": {name: value.cpu() if torch.is_tensor(value) else optimizers.plain(value)
                      for name, value in self._model.state_dict().items()},
            "optimizer": optimizers.plain(optimizers.unscaled_state(self._optimizer, hvd.size())),
            "epoch": self._epoch, "step": self._step, "history": self._history, "seed": plan.seed,
            "rows": plan.data.train.rows, **self._order(), "torch": str(torch.__version__),
        }  # fmt: skip
        file = io.BytesIO()
        torch.save(state, file)
        self._checkpoints.save(file.getvalue(), self._epoch, self._step, score)
