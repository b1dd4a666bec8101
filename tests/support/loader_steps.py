"""Elastic training from a data loader with two worker processes, in which a rank is killed in the middle of an epoch.

Arguments: "persistent", or whatever else for workers that end with each iteration; a folder in which the rank leaves a mark
before it is killed, so that its restarted self is not.
"""

import collections
import os
import pathlib
import signal
import sys

import torch

import horovod.torch as hvd

IS_PERSISTENT, FOLDER = sys.argv[1] == "persistent", pathlib.Path(sys.argv[2])
SAMPLES, EPOCHS, BATCH, KILLED_AT = 120, 2, 4, 3


class Samples(torch.utils.data.Dataset):
    """Each sample is its index, and the process that has read it."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index, os.getpid()


def children():
    return set(pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def main():
    hvd.init()
    data = Samples()
    sampler = hvd.elastic.ElasticSampler(data)
    loader = torch.utils.data.DataLoader(
        data, batch_size=BATCH, sampler=sampler, num_workers=2, persistent_workers=IS_PERSISTENT
    )
    state = hvd.elastic.TorchState(sampler=sampler, epoch=0, taken=[], model=torch.nn.Linear(1, 1))
    readers = set()

    @hvd.elastic.run
    def train(state):
        print(f"size {hvd.size()}, {len(children())} workers", flush=True)
        while state.epoch < EPOCHS:
            for number, (indices, pids) in enumerate(loader):
                mark = FOLDER / "killed"
                if os.environ["HVD_RANK"] == "1" and number == KILLED_AT and not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                state.taken = state.taken + hvd.allgather(indices, name="taken").tolist()
                sampler.record_batch(number, len(indices))
                readers.update(pids.tolist())
                if number % 2 == 1:
                    state.commit()
            counts = collections.Counter(state.taken)
            # As many as there are ranks may come again, in each of the three generations, to give all equally many.
            assert set(counts) == set(range(SAMPLES)) and sum(counts.values()) < SAMPLES + 9, counts
            state.epoch, state.taken = state.epoch + 1, []
            sampler.set_epoch(state.epoch)
            state.commit()

    train(state)
    assert os.getpid() not in readers and len(readers) >= 2
    print(f"ended as rank {hvd.rank()} with {len(children())} workers", flush=True)


main()
