"""ElasticSampler's arithmetic with simulated ranks: each sample once an epoch, whatever becomes of the ranks on the way."""

import collections
import random
import warnings

import pytest

from horovod.torch.elastic import sampler as sampler_module
from horovod.torch.elastic.sampler import ElasticSampler


class Ranks:
    """Ranks is a job of simulated ranks in one process, each with a sampler. All that they know of each other is what
    `commit` tells them."""

    def __init__(self, monkeypatch, samples):
        self.samplers, self.samples, self._now = [], samples, (0, 1)
        self.seen = collections.Counter()  # what was processed up to the last commit
        self.again = collections.Counter()  # of that: what came to give all ranks equally many
        monkeypatch.setattr(sampler_module, "is_initialized", lambda: True)
        monkeypatch.setattr(sampler_module, "rank", lambda: self._now[0])
        monkeypatch.setattr(sampler_module, "size", lambda: self._now[1])

    def meet(self, stayed, size):
        """A new job. Those that have stayed go on with their own states, the others take over the first one's."""
        states = [each.state_dict() for each in stayed]
        assert all(state == states[0] for state in states)
        self.samplers = []
        for rank in range(size):
            self._now = (rank, size)
            self.samplers.append(stayed[rank] if rank < len(stayed) else ElasticSampler(range(self.samples), seed=7))
            if rank < len(stayed):
                self.samplers[-1].reset()
            elif states:
                self.samplers[-1].load_state_dict(states[0])
        assert len({tuple(each.remaining_indices) for each in self.samplers}) == 1
        assert len({len(list(each)) for each in self.samplers}) == 1
        self.parts = [list(each) for each in self.samplers]
        self.done, self.committed = [0] * size, [0] * size

    def work(self, rank, batch, by_indices):
        taken = self.parts[rank][self.done[rank] : self.done[rank] + batch]
        self.done[rank] += len(taken)
        if by_indices:
            self.samplers[rank].record_indices(taken)
        else:
            self.samplers[rank].record_batch(0, batch)  # also where fewer are left

    def commit(self):
        counts = [each.count() for each in self.samplers]
        for rank, each in enumerate(self.samplers):
            each.take_counts(counts)
            for row in range(self.committed[rank], self.done[rank]):
                is_again = row * len(self.samplers) + rank >= len(each.remaining_indices)
                (self.again if is_again else self.seen)[self.parts[rank][row]] += 1
        self.committed = list(self.done)
        self.states = [each.state_dict() for each in self.samplers]
        taken = set(self.seen) | set(self.again)
        assert {each.processed_num for each in self.samplers} == {len(taken)}

    def restore(self):
        for rank, (each, state) in enumerate(zip(self.samplers, self.states)):
            self._now = (rank, len(self.samplers))
            each.load_state_dict(state)


@pytest.mark.parametrize("seed", range(40))
def test_each_sample_comes_once_an_epoch(monkeypatch, seed):
    """Batches of random sizes, commits, losses of any ranks between two of them, ranks that leave at one or join."""
    dice = random.Random(seed)
    ranks = Ranks(monkeypatch, dice.randrange(1, 300))
    stayed = []
    for _ in range(20):
        ranks.meet(stayed, dice.randrange(max(len(stayed), 1), 9))
        ranks.commit()
        for _ in range(dice.randrange(12)):
            for rank in range(len(ranks.samplers)):
                ranks.work(rank, dice.randrange(4), dice.random() < 0.3)
            if dice.random() < 0.5:
                ranks.commit()
        is_announced = dice.random() < 0.3
        if is_announced:
            ranks.commit()
        else:  # all go back to the last commit
            ranks.restore()
        stayed = dice.sample(ranks.samplers, dice.randrange(1, len(ranks.samplers) + 1))
    ranks.meet(stayed, 3)
    for rank in range(3):
        ranks.work(rank, ranks.samples, False)
    ranks.commit()
    assert set(ranks.seen) | set(ranks.again) == set(range(ranks.samples)), "some are left out"
    assert set(ranks.seen.values()) <= {1}, "some came twice"
    assert all(each.processed_num == ranks.samples for each in ranks.samplers)


def test_all_divisions_of_an_epoch_are_forgotten_with_it(monkeypatch):
    ranks = Ranks(monkeypatch, 10)
    ranks.meet([], 2)
    ranks.work(0, 3, True)
    ranks.commit()
    first = ranks.samplers[1]
    assert first.processed_num == 3 and first.state_dict()["divisions"] == [[3, 0]]
    first.set_epoch(1)
    assert first.processed_num == 0 and len(first) == 5 and first.state_dict()["divisions"] == []


def test_between_two_commits_the_others_are_taken_to_work_as_fast(monkeypatch):
    ranks = Ranks(monkeypatch, 12)
    ranks.meet([], 3)
    first, last = ranks.samplers[0], ranks.samplers[2]
    first.record_batch(0, 2)
    assert first.processed_num == 6 and last.processed_num == 0
    last.record_batch(0, 1)
    ranks.done = [2, 0, 1]
    ranks.commit()
    assert first.processed_num == last.processed_num == 3
    last.record_batch(1, 2)
    assert last.processed_num == 4 + 2 + 3


def test_states_of_horovod_and_wrong_samples(monkeypatch):
    ranks = Ranks(monkeypatch, 10)
    ranks.meet([], 2)
    first, second = ranks.samplers
    order = first.remaining_indices
    first.load_state_dict({"epoch": 0, "processed_num": 4})
    assert first.remaining_indices == order[4:] and first.processed_num == 4
    first.load_state_dict({"epoch": 0, "processed_num": 12})  # it counts whole batches where the last one is short
    assert first.remaining_indices == [] and first.processed_num == 10 and len(first) == 0
    with pytest.raises(ValueError, match=r"rank 1: samples .* were recorded, but the next ones are"):
        second.record_indices([list(second)[1]])
    second.record_batch(0, 100)
    assert second.processed_num == 10


def test_a_subclass_that_counts_as_horovods_keeps_the_length_of_its_epoch(monkeypatch):
    ranks = Ranks(monkeypatch, 12)
    ranks.meet([], 2)
    first, second = ranks.samplers
    order = list(first.remaining_indices)
    for _ in range(2):
        first.processed_num += 2 * first.num_replicas
        assert len(first) == 6 and first.remaining_indices == order
    assert first.processed_num == 8
    second.load_state_dict(first.state_dict())
    first.reset()
    assert first.remaining_indices == second.remaining_indices == order[8:] and first.processed_num == 8
    first.record_batch(0, 1)
    assert first.processed_num == 10
    first.processed_num = 0
    first.reset()
    assert first.remaining_indices == order and first.processed_num == 0


def test_a_script_that_begins_no_epoch_is_told_when_it_gets_no_samples(monkeypatch):
    ranks = Ranks(monkeypatch, 4)
    ranks.meet([], 1)
    (sampler,) = ranks.samplers
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler.record_batch(0, 4)
        sampler.reset()  # the ranks are others, right after the epoch's last batch
        assert list(sampler) == []
        sampler.set_epoch(1)
        assert len(list(sampler)) == 4
        sampler.record_batch(0, 4)
        sampler.reset()
        assert list(sampler) == []
    with pytest.warns(UserWarning, match=r"epoch 1 are processed, .* call sampler.set_epoch\(N\) after each epoch"):
        assert list(sampler) == []
