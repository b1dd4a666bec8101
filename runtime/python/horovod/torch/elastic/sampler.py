"""ElasticSampler chooses this rank's samples, of those that are left of the epoch."""

import math
import random
import warnings
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Set, Sized, Tuple

import torch.utils.data

from horovod.torch.mpi_ops import is_initialized, rank, size


class Division(NamedTuple):
    """Division says how many samples each rank has processed, in rank order, of those that were dealt to the ranks in
    turn. Position p of what was dealt is that of rank p % size, in its row p // size."""

    counts: Tuple[int, ...]

    def _again(self, length: int) -> Set[int]:
        """Returns the positions of which a sample was processed when it came again, to give all ranks equally many."""
        ranks = len(self.counts)
        padded = range(length, math.ceil(length / ranks) * ranks)
        return {place % length for place in padded if place // ranks < self.counts[place % ranks]}

    def processed(self, length: int) -> int:
        """Returns how many of so many samples were processed at least once."""
        ranks = len(self.counts)
        once = sum(min(count, len(range(rank, length, ranks))) for rank, count in enumerate(self.counts))
        return once + sum(self.counts[place % ranks] <= place // ranks for place in self._again(length))

    def left(self, dealt: List[int]) -> List[int]:
        """Returns which of the dealt samples no rank has processed."""
        ranks = len(self.counts)
        begin, end = min(self.counts) * ranks, max(self.counts) * ranks
        again = self._again(len(dealt))
        # Before `begin` all are processed, and from `end` on none is.
        places = range(begin, min(end, len(dealt)))
        left = [dealt[p] for p in places if self.counts[p % ranks] <= p // ranks and p not in again]
        return left + dealt[end:]


class ElasticSampler(torch.utils.data.Sampler):
    """Divides a dataset's samples among the ranks, and after a restart those that no rank has seen yet.

        sampler = hvd.elastic.ElasticSampler(dataset)
        loader = torch.utils.data.DataLoader(dataset, batch_size=B, sampler=sampler)
        state = hvd.elastic.TorchState(model, optimizer, sampler=sampler)
        ...
            sampler.record_batch(index, B)      # after each batch
        sampler.set_epoch(epoch + 1)            # after each epoch

    All ranks get equally many: the first samples come again where they do not divide, after each restart too.

    Each rank counts what it has processed of its own samples. TorchState's `commit` and `check_host_updates` tell all
    ranks each other's counts, so batches may differ in size from rank to rank, and ranks may be lost: what a lost rank
    had processed at the last commit is not given out again, and what it processed after that is. Between two commits
    the other ranks are taken to have processed as many more as this one.

    Args:
        dataset: anything with a length; the same on every rank.
        shuffle: in an order that differs from epoch to epoch, and is the same on all ranks.
        seed: the same on every rank.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.num_replicas = 0
        self.rank = 0
        self.remaining_indices: List[int] = []
        self.num_samples = 0
        self.total_size = 0
        self._order: Tuple[Any, List[int]] = (None, [])  # all samples as the epoch has them, and what they are made of
        self._divisions: List[Division] = []  # the earlier ones of this epoch
        self._added = 0  # what a script has added to processed_num, or taken off
        self._count = 0  # what this rank has processed of its samples in the present one
        self._told = [0]  # what each rank had processed of them when it last told
        self._empty_passes = 0  # passes over no samples since the epoch began
        self.reset()

    @property
    def processed_num(self) -> int:
        """How many samples of the epoch all ranks have processed; between two commits, if all work equally fast."""
        now = self._division().processed(len(self.remaining_indices))
        return len(self.dataset) - len(self.remaining_indices) + now + self._added

    @processed_num.setter
    def processed_num(self, count: int) -> None:
        """So many of the epoch's samples, in its order, are processed. As in Horovod, `reset` takes them out: a subclass may set it
        after each batch, in an epoch whose length stays."""
        self._added += count - self.processed_num

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, of which no sample was seen yet."""
        self.epoch = epoch
        self._empty_passes = 0
        self._divide([])

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that this rank has processed a batch of so many of its samples, or of all that were left if these are
        fewer. `batch_idx` is not used."""
        self._count = min(self._count + batch_size, self.num_samples)

    def record_indices(self, indices: Sequence[int]) -> None:
        """Records that this rank has processed these samples: the next ones that it was given.

        Raises:
            ValueError: they are others.
        """
        rows = range(self._count, min(self._count + len(indices), self.num_samples))
        places = (row * self.num_replicas + self.rank for row in rows)
        expected = sorted(self.remaining_indices[place % len(self.remaining_indices)] for place in places)
        if expected != sorted(indices):
            raise ValueError(
                f"ElasticSampler of rank {self.rank}: samples {sorted(indices)} were recorded, but the next ones are "
                f"{expected}; record each batch once, in the sampler's order"
            )
        self._count += len(indices)

    def count(self) -> int:
        """Returns how many of its samples this rank has processed since they were divided; all ranks are to be told."""
        return self._count

    def take_counts(self, counts: Sequence[int]) -> None:
        """Takes what `count` has returned on each rank of the job, in rank order."""
        if len(counts) == self.num_replicas:
            self._told = list(counts)

    def state_dict(self) -> Dict[str, Any]:
        """Returns where the epoch stands. Right after a commit it is exact, and the same on all ranks."""
        divisions = [list(each.counts) for each in self._closed()]
        return {"epoch": self.epoch, "processed_num": self.processed_num, "divisions": divisions}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Takes over a state, also one of Horovod's, which has only `epoch` and `processed_num`."""
        self.epoch = state_dict["epoch"]
        # The first samples of an epoch are what one rank alone would have taken.
        divisions = state_dict.get("divisions", [[state_dict["processed_num"]]])
        self._divide([Division(tuple(counts)) for counts in divisions])

    def reset(self) -> None:
        """Divides the remaining samples among the ranks that there are now."""
        self._divide(self._closed())

    def _divide(self, divisions: List[Division]) -> None:
        self._divisions = divisions
        indices = list(self._all())
        for division in divisions:
            indices = division.left(indices)
        self.remaining_indices = indices
        if is_initialized() or not self.num_replicas:  # a rank that has left the job divides them when it is in one again
            self.num_replicas = size()
            self.rank = rank()
        self.num_samples = math.ceil(len(indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self._added, self._count, self._told = 0, 0, [0] * self.num_replicas

    def _all(self) -> List[int]:
        """Returns the epoch's samples in their order. It is kept, because a restart needs it more than once."""
        made_of = (self.epoch, self.seed, self.shuffle, len(self.dataset))
        if self._order[0] != made_of:
            indices = list(range(len(self.dataset)))
            if self.shuffle:
                random.Random(self.seed + self.epoch).shuffle(indices)
            self._order = (made_of, indices)
        return self._order[1]

    def _division(self) -> Division:
        """Returns the present one, in which other ranks have done as much as this one since they last told."""
        since = self._count - self._told[self.rank]
        return Division(tuple(min(max(told + since, 0), self.num_samples) for told in self._told))

    def _closed(self) -> List[Division]:
        """Returns all divisions of which something was processed; one of one rank for what a script has set."""
        if self._added:
            return [Division((self.processed_num,))]
        now = self._division()
        return [*self._divisions, now] if any(now.counts) else list(self._divisions)

    def __iter__(self) -> Iterator[int]:
        indices = list(self.remaining_indices)
        if len(self.dataset) and not indices:  # once is right: ranks were lost right after the epoch's last batch
            self._empty_passes += 1
            if self._empty_passes == 2:
                warnings.warn(
                    f"ElasticSampler: all samples of epoch {self.epoch} are processed, so this pass has none; call "
                    "sampler.set_epoch(N) after each epoch",
                    stacklevel=2,
                )
        while 0 < len(indices) < self.total_size:
            indices += indices[: self.total_size - len(indices)]
        return iter(indices[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
