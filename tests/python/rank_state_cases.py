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


def broken_off(state, break_off):
    """A training of three steps whose second one fails once, in break_off(); returns the gradients of each step."""
    gradients = []
    failures = iter([False, True, False, False])
    x = torch.ones(4, 2)

    @hvd.elastic.run
    def train(state):
        while state.epoch < 3:
            loss = state.model[0](x).sum()
            loss = state.scaler.scale(loss) if hasattr(state, "scaler") else loss
            loss.backward()
            if next(failures):
                break_off()
                raise hvd.HorovodInternalError("as when a rank is lost")
            if hasattr(state, "scaler"):
                state.scaler.unscale_(state.optimizer)
            gradients.append(state.model[0].weight.grad.clone())
            if hasattr(state, "scaler"):
                state.scaler.step(state.optimizer)
                state.scaler.update()
            else:
                state.optimizer.step()
            state.optimizer.zero_grad()
            state.epoch += 1
            state.commit()

    train(state)
    return gradients


def case_gradients_of_a_step_that_was_broken_off_are_not_added_to():
    gradients = broken_off(make_state(), lambda: None)
    assert [gradient.tolist() for gradient in gradients] == [[[4.0, 4.0]] * 3] * 3, gradients


def case_a_scaler_goes_on_after_a_step_that_was_broken_off():
    for fused in (False, True):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        model = torch.nn.Sequential(torch.nn.Linear(2, 3))
        base = torch.optim.Adam(model.parameters(), fused=fused)
        optimizer = hvd.DistributedOptimizer(base, model.named_parameters())
        state = hvd.elastic.TorchState(model=model, optimizer=optimizer, scaler=scaler, epoch=0)

        def break_off():
            scaler.unscale_(optimizer)
            if fused:  # as GradScaler leaves them where the step itself fails
                optimizer.grad_scale, optimizer.found_inf = torch.tensor(1024.0), torch.tensor(0.0)

        gradients = broken_off(state, break_off)
        assert [gradient.tolist() for gradient in gradients] == [[[4.0, 4.0]] * 3] * 3, gradients
        for p in model.parameters():
            moment = optimizer.state[p]["exp_avg"]
            torch.testing.assert_close(moment, torch.full_like(moment, 4 * (1 - 0.9**3)))


def case_a_scaler_that_is_not_enabled_is_restored():
    state = make_state()
    state = hvd.elastic.TorchState(model=state.model, scaler=torch.amp.GradScaler("cpu", enabled=False), epoch=0)
    state.epoch = 5
    state.restore()
    assert state.epoch == 0


def case_gradients_that_a_script_keeps_stay_where_they_are():
    state = make_state()
    weight = state.model[0].weight
    weight.grad = kept = torch.ones_like(weight)
    state.commit()
    kept.fill_(7.0)
    state.restore()
    assert weight.grad is kept and not kept.any() and state.model[0].bias.grad is None


class StateWithBest(hvd.elastic.TorchState):
    def __init__(self, **kwargs):
        self.best = 0.5
        super().__init__(**kwargs)


def case_a_class_of_the_script_s_own_may_set_attributes_first():
    state = StateWithBest(model=torch.nn.Linear(1, 1), epoch=0)
    assert state.best == 0.5 and state.covers(state.model)


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
