"""Who sends the state of an elastic job to whom, and after which errors it is restored, without any rank."""

import pytest

from horovod.common import basics
from horovod.common.elastic import _AHEAD, _FRESH, _SAVED, MAX_FAILURES_WITHOUT_COMMIT, Standing, run_fn, who_sends
from horovod.common.exceptions import HorovodInternalError


def ranks(*standings, per_node=2):
    return [Standing(kind, commits, 0, place // per_node) for place, (kind, commits) in enumerate(standings)]


@pytest.mark.parametrize(
    "standings, root, receivers",
    [
        # The job begins: rank 0's state, as it is.
        ([(_FRESH, 0)] * 4, 0, {0: [1, 2, 3]}),
        # After a loss all have what they have committed: nothing is sent.
        ([(_SAVED, 7)] * 3, 0, {}),
        # They have left between two commits, all at the same place.
        ([(_AHEAD, 7)] * 3, 0, {}),
        # A newcomer gets the state from a rank on its own node, others from the root.
        ([(_SAVED, 7), (_SAVED, 7), (_SAVED, 7), (_FRESH, 0), (_FRESH, 0)], 0, {2: [3], 0: [4]}),
        # Who failed before its last commit receives, and so does who was not restored while others were.
        ([(_SAVED, 6), (_SAVED, 7), (_AHEAD, 7)], 1, {1: [0, 2]}),
        # Whoever has trained counts for more than what a new process says of itself.
        ([(_FRESH, 9), (_SAVED, 2)], 1, {1: [0]}),
    ],
)
def test_only_ranks_without_the_state_receive_it(standings, root, receivers):
    sending = who_sends(ranks(*standings))
    assert (sending.root, sending.receivers) == (root, receivers)


@pytest.mark.parametrize("why", ["is_touched", "is_asked"])
def test_all_receive_the_state_where_a_script_may_have_changed_it_on_some_ranks(why):
    same = ranks((_AHEAD, 7), (_AHEAD, 7), (_AHEAD, 7), (_FRESH, 0))
    sending = who_sends([same[0], same[1]._replace(**{why: 1}), *same[2:]])
    assert (sending.root, sending.receivers) == (0, {0: [1, 2, 3]})
    # A process that comes anew always asks.
    assert who_sends([*same[:3], same[3]._replace(**{why: 1})]).receivers == {2: [3]}


class CountedState:
    """Counts how often it is restored."""

    restored = 0

    def restore(self):
        self.restored += 1

    def sync(self):
        pass

    on_reset = sync


def test_an_error_that_a_failed_collective_has_caused_restores_the_state():
    def train(state):
        try:
            raise HorovodInternalError("rank 1 is gone")
        except HorovodInternalError as error:
            raise ValueError("no batch") from error

    state = CountedState()
    with pytest.raises(HorovodInternalError, match="rank 1 is gone"):  # for it comes again and again
        run_fn(train, lambda: None)(state)
    assert state.restored == MAX_FAILURES_WITHOUT_COMMIT


def test_an_error_of_the_script_is_raised_even_where_a_failure_is_being_handled():
    def train(state):
        raise ValueError("the script's own")

    state = CountedState()
    try:
        raise HorovodInternalError("an older one")
    except HorovodInternalError:
        with pytest.raises(ValueError, match="the script's own"):
            run_fn(train, lambda: None)(state)
    assert state.restored == 0


@pytest.mark.parametrize("again, first, seconds", [
    ("1", None, (60, 1)), ("1", "90", (90, 1)), ("600", None, (600, 600)), (None, "900", (900, 600)), ("1", "soon", (1, 1)),
])  # fmt: skip
def test_ranks_that_meet_for_the_first_time_have_no_less_time_than_those_of_other_jobs(monkeypatch, again, first, seconds):
    for name, value in (("HOROVOD_ELASTIC_TIMEOUT", again), ("HOROVOD_START_TIMEOUT", first)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    for generation, allowed in enumerate(seconds):
        monkeypatch.setattr(basics, "generation", generation)
        assert basics._seconds_to_meet() == allowed
