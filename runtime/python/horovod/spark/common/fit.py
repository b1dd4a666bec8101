"""What a rank is told of a fit, whatever the framework is. Ranks import it; it needs no Spark."""

from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional

import numpy

from horovod.spark.common.reader import WEIGHT, Reader


@dataclass
class Plan:
    """What all estimators send to their ranks; see the estimator's parameters."""

    data: Any  # of common/dataset.py: Prepared
    module: Any  # a class of common/datamodule.py
    columns: List[str]  # all that are read
    feature_cols: List[str]
    label_cols: List[str]
    sample_weight_col: Optional[str]
    transform: Optional[Callable[[Any], Any]]
    compression: Any
    run_id: str
    batch_size: int
    val_batch_size: int
    epochs: int
    train_steps: Optional[int]
    validation_steps: Optional[int]
    backward_passes: int
    shuffle: bool
    seed: int
    train_ahead: int
    in_memory: bool
    use_gpu: bool
    verbose: int
    keep_checkpoints: int
    resume: Any  # what the checkpoint holds, as the framework's training reads it; None: the run is new
    begin: int  # the epoch with which this fit began; `epochs` counts on from those of the run's earlier fits

    def has_begun(self, facts: Dict[str, Any]) -> bool:
        """Whether the checkpoint that says these facts is of this fit, and not of the one before."""
        return (facts["epoch"], facts.get("step", 0)) > (self.begin, 0)

    def history_in(self, facts: Dict[str, Any]) -> Any:
        """The history in these facts, which has the epochs of one fit; empty, where it is of the fit before."""
        return facts["history"] if self.has_begun(facts) else type(facts["history"])()


def data_of(plan: Plan, store: Any, rank: int, size: int) -> Any:
    """This rank's batches: a DataModule."""
    return plan.module(
        plan.data.train, plan.data.validation, num_train_epochs=plan.epochs, has_val=plan.data.validation is not None,
        train_batch_size=plan.batch_size, val_batch_size=plan.val_batch_size, shuffle=plan.shuffle,
        transform_fn=plan.transform, inmemory_cache_all=plan.in_memory, cur_shard=rank, shard_count=size,
        schema_fields=plan.columns, storage_options=store.storage_options, steps_per_epoch_train=plan.train_steps,
        steps_per_epoch_val=plan.validation_steps, verbose=plan.verbose, store=store, seed=plan.seed,
        ahead=plan.train_ahead,
    )  # fmt: skip


def counted(batches: Iterable[Dict[str, numpy.ndarray]]) -> Iterator[Dict[str, numpy.ndarray]]:
    """Batches for validation, in which each row counts once: rows that only fill the last batch are left out.

    A data module of the program's own may have no such rows, and no column that says which they are."""
    for batch in batches:
        weight = batch.pop(WEIGHT, None)
        is_counted = numpy.ones(1, bool) if weight is None else weight > 0
        if is_counted.any():
            yield batch if is_counted.all() else {name: values[is_counted] for name, values in batch.items()}


def first_batch(plan: Plan, store: Any, transform: Optional[Callable[[Any], Any]]) -> Dict[str, numpy.ndarray]:
    """The first batch of the data, as the transform makes it, to try on the driver what the ranks will do."""
    with Reader(plan.data.train, store, rank=0, size=1, batch=plan.batch_size, shuffle=False, pool=1, ahead=0,
                columns=plan.columns, transform=transform) as reader:  # fmt: skip
        return next(reader.epoch(0))
