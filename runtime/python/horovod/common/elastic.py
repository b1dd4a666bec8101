"""Training that goes on after a failed collective: states that can be saved and restored, and the loop around them.

Fronts make their own state and `run` of these (horovod.torch.elastic).
"""

import copy
import ctypes
import functools
import os
import queue
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, NamedTuple, Sequence, Set, Tuple

import numpy as np

from horovod.common import _arrays, _failure, _lib, _wait
from horovod.common.basics import came_late, is_initialized, rank, restart_limit, size
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.common.process_sets import ProcessSet, make_passing, remove_passing

# A failure that comes again at once, with nothing committed in between, is an error of the script (ranks that disagree,
# for example) and would come for ever. In an elastic job as many more are allowed as ranks are started again.
MAX_FAILURES_WITHOUT_COMMIT = 3

# The time in seconds between two looks at whether ranks that are on their way have come.
_LOOK_S = 0.01


def _tell_all(flags: Sequence[bool], numbers: Sequence[int]) -> Tuple[List[bool], List[List[int]]]:
    """Returns for each flag whether it is true on any rank of the job, and the numbers of each rank, in rank order.

    All ranks have equally many numbers, and none is negative. One small reduction brings both, so that a rank which has
    one of them has the other.
    """
    if not is_initialized() or size() == 1:
        return list(flags), [list(numbers)]
    count = len(flags) + size() * len(numbers)
    own, result = (ctypes.c_int64 * count)(*flags), (ctypes.c_int64 * count)()
    first = len(flags) + rank() * len(numbers)
    own[first : first + len(numbers)] = list(numbers)
    plan = _lib.Plan(_lib.ALLREDUCE, _lib.INT64, (count,), "elastic.told", _lib.MAX)
    status = _wait.call(plan.execute, ctypes.addressof(own), ctypes.addressof(result))
    if status:
        raise HorovodInternalError(_lib.last_error(), status)
    begins = [len(flags) + other * len(numbers) for other in range(size())]
    return [bool(flag) for flag in result[: len(flags)]], [result[begin : begin + len(numbers)] for begin in begins]


# What a rank's state is when the ranks synchronise.
_FRESH = 0  # as the script has made it
_AHEAD = 1  # of its last commit: this rank has left between two commits
_SAVED = 2  # as it was saved last: this rank has left at a commit, or was restored


class Standing(NamedTuple):
    """Standing is what the others need to know of a rank's state to agree who sends it to whom."""

    kind: int
    commits: int
    is_touched: int  # reset callbacks may have changed what was saved
    node: int  # the same for ranks of one machine
    is_asked: int = 0  # the script has asked for this, between two failures, and may have changed the state before


class Sending(NamedTuple):
    """Sending says whose state all ranks take over, and from whom each rank gets it that does not have it."""

    root: int
    receivers: Dict[int, List[int]]  # of each rank that sends


def who_sends(standings: Sequence[Standing]) -> Sending:
    """Returns who sends the state to whom. That of the rank which has committed most is taken over, if possible of one
    that has trained.

    Ranks that have trained together have it too if they have committed equally often, and all were restored or none
    was; but none where a script or its callbacks may have changed it on some of them. A rank that does not have it gets it
    from one that does on its own node, or else from the root.
    """
    keys = [(each.kind != _FRESH, each.commits, each.kind) for each in standings]
    root = keys.index(max(keys))
    may_differ = any(each.kind != _FRESH and (each.is_touched or each.is_asked) for each in standings)
    has_owners = keys[root][0] and not may_differ
    owners = [rank for rank, key in enumerate(keys) if key == keys[root]] if has_owners else [root]
    nodes = [each.node for each in standings]
    receivers: Dict[int, List[int]] = {}
    for rank in sorted(set(range(len(standings))) - set(owners)):
        source = next((owner for owner in owners if nodes[owner] == nodes[rank]), root)
        receivers.setdefault(source, []).append(rank)
    return Sending(root, receivers)


class HostUpdateResult:
    """HostUpdateResult says what became of the hosts, for State.on_hosts_updated. Its numbers can be or-ed."""

    no_update = 0
    removed = 1
    added = 2
    mixed = 3


class HostMessages(queue.Queue):
    """HostMessages is what a state was told of hosts, and what the library is told of ranks."""

    def empty(self) -> bool:
        """Returns False when the next commit acts on a change. While ranks are on their way it waits for them, since a
        script that looks here means to go on with them."""
        while super().empty():
            if not is_initialized():
                return True
            if _lib.feature(_lib.HAS_CHANGED):
                return False
            if not _lib.feature(_lib.IS_GROWING):
                return True
            time.sleep(_LOOK_S)
        return False

    def take(self) -> List[Tuple[int, int]]:
        """Returns what the state was told, and forgets it."""
        told = []
        while self.qsize():
            told.append(self.get())
        return told


class State:
    """State is what training consists of, between a failure and going on.

    Args:
        bcast_object: broadcasts an object from rank 0.
        get_rank: this process's rank.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._commits = 0
        self._standing = _FRESH
        self._has_failed = False  # since it was synchronised
        self._host_messages = HostMessages()
        self._last_updated_timestamp = 0
        self._reset_callbacks: List[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: List[Callable[[], None]]) -> None:
        """Registers functions that are called after the job was joined again; to scale a learning rate, say."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Runs after the job was joined again."""
        self._host_messages = HostMessages()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: int, update_res: int) -> None:
        """Tells of hosts that came or went; the next `commit` acts on it on all ranks."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Calls `check_host_updates`, then saves the state, to which a failure will return.

        In this order, because what is saved must say what every rank has processed, also one that is lost afterwards. So
        a rank that is lost on the way to a commit takes all back to the commit before.
        """
        interrupt = None
        try:
            self.check_host_updates()
        except HostsUpdatedInterrupt as told:
            interrupt = told
        self.save()
        self._commits += 1
        _failure.note_commit()
        if interrupt is not None:
            self._standing = _SAVED
            raise interrupt

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on every rank if one of them was told that processes have come or are to go.

        All ranks call it, and are told what the others have processed."""
        result = HostUpdateResult.no_update
        for when, what in self._host_messages.take():
            if when > self._last_updated_timestamp:
                self._last_updated_timestamp, result = when, result | what
        has_changed = is_initialized() and bool(_lib.feature(_lib.HAS_CHANGED))
        is_told = has_changed or result != HostUpdateResult.no_update
        # Whoever comes needs the others' state. Whether somebody comes must be agreed, since all synchronise or none.
        needs_sync = has_changed or result not in (HostUpdateResult.no_update, HostUpdateResult.removed)
        (is_told, needs_sync), progress = _tell_all((is_told, needs_sync), self._progress())
        self._take_progress(progress)
        if is_told:
            raise HostsUpdatedInterrupt(not needs_sync)

    def _progress(self) -> List[int]:
        """Returns numbers that say what of its data this rank has processed. All ranks are told them at each commit."""
        return []

    def _take_progress(self, progress: List[List[int]]) -> None:
        """Takes what `_progress` has returned on each rank, in rank order."""

    def save(self) -> None:
        """Keeps the state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Makes all ranks' state the same."""
        raise NotImplementedError

    def reset(self) -> None:
        """Resets a state that depends on the number of ranks. Called after the job was joined again."""

    def _is_as_saved(self) -> bool:
        """Returns whether nothing was trained since it was saved: this rank has left at a commit, or was restored."""
        return self._standing == _SAVED

    def _share(self, send: Callable[[int, ProcessSet], None], among_all: bool = False) -> None:
        """Gives all ranks the state of the one that has committed most, and saves it where it is not saved yet.

        `send(root, process_set)` broadcasts all of the state; only ranks that send or receive call it. So those that
        have the state already neither send nor copy it. `among_all`: it works for all ranks together only.

        A saved state has another number of commits than any before it, so that who has failed in here, and was
        restored, is known to have another one.
        """
        own = Standing(
            self._standing, self._commits, bool(self._reset_callbacks), zlib.crc32(os.uname().nodename.encode()), not self._has_failed
        )  # fmt: skip
        self._has_failed = False
        standings = [Standing(*row) for row in _arrays.allgather(np.array([own], np.int64), "elastic.standing").tolist()]
        root, receivers = who_sends(standings)
        if rank() == 0 and standings[root].kind == _FRESH and restart_limit() and came_late():
            # Ranks that stay come first, so that all of them are gone.
            print("hvd rank 0: warning: no process is left that had the state of the training; it begins with what the "
                  "script itself starts with", file=sys.stderr, flush=True)  # fmt: skip
        if among_all and receivers:
            receivers = {root: [other for other in range(size()) if other != root]}
        receives = any(rank() in ranks for ranks in receivers.values())
        is_saved = standings[root].kind == _SAVED and not standings[root].is_touched
        commits = standings[root].commits + (not is_saved)
        if not is_saved and not receives:
            self.save()
            self._commits = commits
        groups = {source: make_passing([source, *ranks]) for source, ranks in sorted(receivers.items())}
        for source, group in groups.items():
            if group.included():
                send(source, group)
        for group in groups.values():
            remove_passing(group)
        if receives:
            self.save()
            self._commits = commits
        self._standing = _AHEAD


class ObjectState(State):
    """ObjectState is a state of plain objects: each keyword argument becomes an attribute, which the script reads and
    sets.

    Saved by deep copy, and synchronised by broadcast from rank 0. Until the state is restored or taken over from another
    rank, an attribute is the object that was given.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        for name, value in kwargs.items():  # no copies: an object may belong to others of the script
            setattr(self, name, value)
        self._saved_state: Dict[str, Any] = self._copies(kwargs)
        # What attributes began with, of which nothing that was counted in training has been saved.
        self._uncounted: Dict[str, Any] = dict(self._saved_state)
        self._counted: Set[str] = set()

    def is_counted(self, name: str) -> bool:
        """Returns whether an attribute holds what was counted in training, and not what the script has begun with. The same
        on all ranks after sync()."""
        return name not in self._uncounted or bool(getattr(self, name) != self._uncounted[name])

    def note_counted(self, name: str) -> None:
        """An attribute holds from now on what is counted, unless the state is restored to what it was before."""
        self._counted.add(name)

    if TYPE_CHECKING:  # the attributes are the keyword arguments, of any type

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def save(self) -> None:
        self._uncounted = self._still_uncounted()
        self._saved_state = self._copies(self._saved_state)

    def _copies(self, names: Iterable[str]) -> Dict[str, Any]:
        """Returns copies of these attributes, from which `_set_attrs` makes them again."""
        return {name: copy.deepcopy(getattr(self, name)) for name in names}

    def restore(self) -> None:
        self._counted = set()
        self._set_attrs()

    def sync(self) -> None:
        if self._saved_state:
            self.save()
            self._saved_state, self._uncounted = self._bcast_object((self._saved_state, self._uncounted))
            self._set_attrs()

    def _share_objects(self, root: int, broadcast: Callable[[Any], Any]) -> None:
        """Takes over the root's attributes, without saving them."""
        if self._saved_state:
            own = {name: getattr(self, name) for name in self._saved_state}
            values, uncounted = broadcast((own, self._still_uncounted()))
            if rank() != root:
                self._uncounted, self._counted = uncounted, set()
                for name, value in values.items():
                    setattr(self, name, value)

    def _still_uncounted(self) -> Dict[str, Any]:
        return {name: value for name, value in self._uncounted.items() if name not in self._counted}

    def _set_attrs(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))


class LeftJob(SystemExit):
    """LeftJob ends a rank whose host is given back, with code 0."""

    has_left_job = True


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Returns a function that calls `func(state, ...)` until it ends.

    When HorovodInternalError comes out of it, or an error that one has caused, the last commit is restored, `reset` joins
    the job anew, the ranks' states are synchronised, and `func` is called again. So it is on every rank, since a failed
    collective raises on every rank; in an elastic job a rank that ended is started anew by hvdrun, and meets the others
    there. A failure that comes again MAX_FAILURES_WITHOUT_COMMIT times with nothing committed in between (in an elastic
    job: and once for each restart) is raised, and so is everything else that comes out of `func`.

    A rank whose host is given back leaves at a commit like the others, and then ends: LeftJob is raised.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        skip_sync = False
        failures, commits_then = 0, -1
        has_failed = False
        handled = sys.exc_info()[1]  # Python takes it for the context of all that is raised in here
        while True:
            try:
                if not skip_sync:
                    state._has_failed = has_failed
                    state.sync()
                return func(state, *args, **kwargs)
            except HostsUpdatedInterrupt as interrupt:
                # In an elastic job somebody may come who needs the others' state, whatever the script was told.
                skip_sync = interrupt.skip_sync and restart_limit() == 0
                if skip_sync:
                    state._standing = _AHEAD  # it trains on
            except Exception as error:
                if _failure.job_error(error, handled) is None:
                    raise
                commits = getattr(state, "_commits", 0)
                failures = failures + 1 if commits == commits_then else 1
                commits_then = commits
                if failures > MAX_FAILURES_WITHOUT_COMMIT + restart_limit():
                    if isinstance(error, HorovodInternalError):
                        raise
                    raise _failure.job_error(error, handled) from error
                state.restore()
                skip_sync = False
                if getattr(state, "_standing", _FRESH) != _FRESH:
                    state._standing = _SAVED
            try:
                reset()
            except HorovodInternalError as error:
                if error.status != _lib.CANCELLED:
                    raise
                # This rank's host is given back. All that it did is in the last commit, which the others have.
                raise LeftJob(0) from None
            has_failed = True
            state.on_reset()

    return wrapper
