"""Process sets are named subsets of the ranks, which do operations of their own."""

import os
import threading
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np

from horovod.common import _arrays, _lib, _wait, basics
from horovod.common._process_set import ProcessSet as ProcessSet
from horovod.common._process_set import _known
from horovod.common._process_set import global_process_set as global_process_set
from horovod.common._process_set import number_of as number_of
from horovod.common.exceptions import HorovodInternalError

# An elastic job forms its sets again when its ranks meet again, of the processes that are left. Each set has a number
# there, the same on all ranks: those of init() from -1 downwards, others as they were added. These are the ones that this
# process has an object of, and whether it is a member.
_lasting: Dict[int, Tuple[ProcessSet, bool]] = {}
_last_number = 0  # of those that were added, by anybody
_formed: Dict[Tuple[int, ...], int] = {}  # numbers of the sets that were formed again, by their ranks


def _forget_all() -> None:
    for process_set in list(_known):
        process_set.process_set_id = None
    _known.clear()
    _formed.clear()


basics.when_left.append(_forget_all)

# One lock for each set that its members are making, by its ranks, so that only one thread of this rank makes it.
_adding: Dict[Tuple[int, ...], threading.Lock] = {}
_adding_lock = threading.Lock()


def add_process_set(process_set: Union[ProcessSet, Iterable[int]]) -> ProcessSet:
    """Makes a process set known to the job. Every rank of the job calls it, members or not, with the same ranks, at the same
    place; returns when all have.

    Raises (on every rank):
        ValueError: a rank is not of the job, or a set of the same ranks exists (hvd.global_process_set has all); or it is
            before init.
        HorovodInternalError: ranks name different sets, or a rank is gone.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set!r} is known to the job already")
    global _last_number
    basics.size()  # raises ValueError before init
    number = _formed.get(tuple(process_set.ranks))
    if number is None:
        process_set.process_set_id = _lib.add_process_set(process_set.ranks, _wait.call)
        number = _last_number = _last_number + 1
    else:  # all ranks know this one since they met again
        process_set.process_set_id = _number_of_ranks(process_set.ranks)
    process_set.is_gone = False
    if basics.restart_limit():
        _lasting[number] = (process_set, process_set.included())
    _known.add(process_set)
    return process_set


def _number_of_ranks(ranks: List[int]) -> int:
    return next(number for number, members in _lib.process_sets().items() if members == ranks)


def _form_again(initial: Sequence[Any]) -> None:
    """Makes the sets of an elastic job, those of `init` and those that were there before, of the processes that are left.
    All ranks call it when they have met. A process that has come is a member of a set of `init` by the rank that it was
    started as."""
    global _last_number
    for place, item in enumerate(initial):
        process_set = item if isinstance(item, ProcessSet) else ProcessSet(item)
        outside = [rank for rank in process_set.ranks if not 0 <= rank < int(os.environ["HVD_SIZE"])]
        if outside:
            raise ValueError(f"{process_set!r}: rank {outside[0]} is not of the job")
        _lasting[-1 - place] = (process_set, int(os.environ["HVD_RANK"]) in process_set.ranks)
    claims = [[basics.rank(), _last_number, -1]]
    claims += [[basics.rank(), number, is_member] for number, (_, is_member) in _lasting.items()]
    table = _arrays.allgather(np.array(claims, np.int64), "process_sets.again").tolist()
    _last_number = max(number for _, number, kind in table if kind < 0)
    for number in sorted({number for _, number, kind in table if kind >= 0}):
        ranks = sorted(rank for rank, other, kind in table if other == number and kind == 1)
        own = _lasting.get(number, (None, False))[0]
        if ranks and tuple(ranks) not in _formed:  # two sets may have become one
            if len(ranks) < basics.size():
                _lib.add_process_set(ranks, _wait.call)
            _formed[tuple(ranks)] = number
        if own is not None:
            own.is_gone = not ranks
        if own is not None and ranks:
            own._ranks = ranks
            own.process_set_id = _number_of_ranks(ranks)
            _known.add(own)


def make_passing(ranks: Sequence[int]) -> ProcessSet:
    """Returns the process set of these ranks, and makes it if there is none, for `remove_passing`. All ranks of the job
    call it at the same place."""
    if len(ranks) == basics.size():
        return global_process_set
    process_set = ProcessSet(ranks)
    try:
        process_set.process_set_id = _lib.add_process_set(process_set.ranks, _wait.call)
        process_set.is_passing = True
    except ValueError:
        sets = _lib.process_sets()
        process_set.process_set_id = next((number for number in sets if sets[number] == process_set.ranks), None)
        if process_set.process_set_id is None:
            raise
    _known.add(process_set)
    return process_set


def remove_passing(process_set: ProcessSet) -> None:
    """Ends what `make_passing` has made; on all ranks, at the same place."""
    if process_set.is_passing:
        remove_process_set(process_set)


def add_by_members(ranks: Sequence[int]) -> ProcessSet:
    """Returns the process set of these ranks, and makes it if there is none. Only they call this; the other ranks need
    do nothing. Returns when all members have called.

    Raises:
        ValueError: this process is none of them.
        HorovodInternalError: a rank is gone, or a member has joined.
    """
    with _adding_lock:
        adding = _adding.setdefault(tuple(sorted(ranks)), threading.Lock())
    with adding:  # two threads of a rank may want it at once
        known = known_process_set(ranks)
        if known is not None:
            return known
        process_set = ProcessSet(ranks)
        process_set.process_set_id = _lib.add_process_set(process_set.ranks, _wait.call, by_members=True)
        _known.add(process_set)
        return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Ends a process set, on every rank of the job at the same place. What was started in it is done first.

    Returns whether it was ended: not hvd.global_process_set, one that the job does not know, or one in which operations
    wait for ranks that have not come yet.

    Raises:
        HorovodInternalError: ranks name different sets, or a rank is gone; on every rank.
    """
    number = process_set.process_set_id
    if not number:
        return False
    status = _lib.remove_process_set(number, _wait.call)
    if status in (_lib.INVALID, _lib.NOT_FOUND):
        return False
    if status:
        raise HorovodInternalError(_lib.last_error(), status)
    _formed.pop(tuple(process_set.ranks), None)
    for same in [known for known in _known if known.process_set_id == number]:
        same.process_set_id = None
    for lasting in [key for key, (known, _) in _lasting.items() if known.process_set_id is None and not known.is_gone]:
        del _lasting[lasting]
    remaining = [known for known in _known if known.process_set_id is not None]
    _known.clear()
    _known.update(remaining)
    return True


def known_process_set(ranks: Sequence[int]) -> Optional[ProcessSet]:
    """Returns the set of these ranks that the job knows, if there is one."""
    wanted = sorted(ranks)
    for process_set in list(_known):
        if process_set.ranks == wanted:
            return process_set
    return global_process_set if wanted == global_process_set.ranks else None


def _temp_process_set_object(process_set_id: int) -> ProcessSet:
    """Returns the set with this number, for programs' own gradients of operations. ValueError: this process knows none."""
    for process_set in (global_process_set, *_known):
        if process_set.process_set_id == process_set_id:
            return process_set
    raise ValueError(f"no process set has the number {process_set_id}")


def get_process_set_ids_and_ranks() -> Dict[int, List[int]]:
    """Returns the sets that the job knows: their numbers, and their ranks ascending. HorovodInternalError before
    init."""
    return _lib.process_sets()


def _add_initial(process_sets: Any, is_joined: bool) -> None:
    """Makes the process sets that hvd.init(process_sets=...) names, and in an elastic job those that were there. `is_joined`:
    somebody, such as a library, has called hvd.init() before, and the job may know some of them."""
    if basics.restart_limit():
        return _form_again(process_sets)
    for item in process_sets:
        process_set = item if isinstance(item, ProcessSet) else ProcessSet(item)
        known = _lib.process_sets() if is_joined else {}
        number = next((number for number in known if known[number] == process_set.ranks), None)
        if number is None:
            add_process_set(process_set)
        elif process_set is not global_process_set:
            process_set.process_set_id = number
            _known.add(process_set)


basics.with_initial_sets.append(_add_initial)
