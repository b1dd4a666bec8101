"""ElasticSampler chooses this rank's samples, of those that are left of the epoch."""

import math
import random
from typing import Any, Dict, Iterator, List, Sized

import torch.utils.data

from horovod.torch.mpi_ops import rank, size


class ElasticSampler(torch.utils.data.Sampler):
    """Divides a dataset's samples among the ranks, and after a restart those that no rank has seen yet.

        sampler = hvd.elastic.ElasticSampler(dataset)
        loader = torch.utils.data.DataLoader(dataset, batch_size=B, sampler=sampler)
        state = hvd.elastic.TorchState(model, optimizer, sampler=sampler)
        ...
            sampler.record_batch(index, B)      # after each batch
        sampler.set_epoch(epoch + 1)            # after each epoch

    All ranks get equally many: the first samples come again where they do not divide.

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
        self.processed_num = 0
        self.num_replicas = 0
        self.rank = 0
        self.remaining_indices: List[int] = []
        self.num_samples = 0
        self.total_size = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, of which no sample was seen yet."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that every rank has processed a batch of so many samples. `batch_idx` is not used."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> Dict[str, Any]:
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divides the remaining samples among the ranks that there are now."""
        self.num_replicas = size()
        self.rank = rank()
        everything = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(everything)
        self.remaining_indices = everything[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        indices = list(self.remaining_indices)
        while 0 < len(indices) < self.total_size:
            indices += indices[: self.total_size - len(indices)]
        return iter(indices[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
