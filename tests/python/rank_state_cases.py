"""What ranks have of an elastic state after they have synchronised; runs as a rank (test_multi.py), on any number of ranks."""

import torch
from rank_side import run_cases

import horovod.torch as hvd

hvd.init()
RANK = hvd.rank()


def make_state():
    torch.manual_seed(RANK)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    return hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0, best=None)


def change(state, value):
    """As a script does that reloads its best weights, say."""
    with torch.no_grad():
        state.model[0].weight.fill_(value)
    state.optimizer.param_groups[0]["lr"] = state.epoch = value


def what_it_has(state):
    return (state.epoch, state.optimizer.param_groups[0]["lr"], state.model[0].weight.tolist())


def check(state, value):
    assert what_it_has(state) == (value, value, [[value] * 2] * 3), what_it_has(state)


def case_each_call_of_a_function_begins_with_rank_0_s_state():
    state = make_state()

    @hvd.elastic.run
    def train(state):
        if state.epoch:
            check(state, state.epoch)
        state.commit()
        return state.epoch

    assert train(state) == 0
    for value in (5.0, 6.0):
        if RANK == 0:
            change(state, value)
        assert train(state) == value


def case_a_script_that_synchronises_gets_rank_0_s_state():
    state = make_state()

    @hvd.elastic.run
    def train(state):
        for value in (7.0, 8.0):
            change(state, value + RANK)
            if value == 8.0:
                state.commit()
            state.sync()
            check(state, value)

    train(state)


def case_what_a_callback_changes_on_rank_0_all_have():
    state = make_state()
    state.register_reset_callbacks([lambda: RANK == 0 and change(state, 9.0)])
    failures = iter([True, False])

    @hvd.elastic.run
    def train(state):
        state.commit()
        if next(failures):
            raise hvd.HorovodInternalError("as when a rank is lost")
        check(state, 9.0)

    train(state)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index

    def __deepcopy__(self, memo):
        raise AssertionError("all of the data would be copied at each commit")


def case_what_batches_come_from_is_not_copied_and_keeps_its_epoch():
    sampler = torch.utils.data.distributed.DistributedSampler(Rows(), 1, 0)
    loader = torch.utils.data.DataLoader(sampler.dataset, sampler=sampler)
    state = hvd.elastic.TorchState(sampler=sampler, loader=loader, rows=sampler.dataset, epoch=0)
    sampler.set_epoch(3 + RANK)
    state.sync()
    assert sampler.epoch == 3 and state.sampler is sampler and state.loader is loader
    state.commit()
    sampler.set_epoch(9)
    state.restore()
    assert sampler.epoch == 3 and state.sampler is sampler and state.rows is sampler.dataset


if __name__ == "__main__":
    run_cases(dict(globals()), hvd.barrier)
    hvd.shutdown()
