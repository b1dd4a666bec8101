"""What a process set is. horovod.common.process_sets makes sets known to the job; what only carries them needs no more
than this."""

from typing import Iterable, List, Optional, Set

from horovod.common import basics


class ProcessSet:
    """ProcessSet is some of the job's ranks. `add_process_set`, or hvd.init(process_sets=[...]), makes it known to the
    job. Until then, and after `remove_process_set` or hvd.shutdown(), `process_set_id` is None and no operation can use
    it.

    Args:
        ranks_or_comm: the ranks, anything that can be iterated, in any order, none twice. An MPI communicator is refused:
            there is no MPI underneath.

    Raises:
        ValueError: it is something else.
    """

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        ranks = list(ranks_or_comm) if isinstance(ranks_or_comm, Iterable) else [None]
        if not all(isinstance(rank, int) and not isinstance(rank, bool) for rank in ranks):
            raise ValueError(
                f"a process set is a list of ranks, not {type(ranks_or_comm).__name__}; MPI communicators are not supported"
            )
        self.process_set_id: Optional[int] = None
        self._ranks: Optional[List[int]] = sorted(ranks)

    mpi_comm = None  # Horovod's attribute; never set
    is_passing = False  # made for one purpose, and removed after it
    is_gone = False  # no process of it is left in an elastic job

    @property
    def ranks(self) -> List[int]:
        """Returns the members, ascending."""
        return list(self._ranks)

    def size(self) -> Optional[int]:
        """Returns how many members it has; None while the job does not know it."""
        return None if self.process_set_id is None else len(self._ranks)

    def rank(self) -> Optional[int]:
        """Returns this process's number among the members; None while the job does not know it. ValueError for no
        member."""
        if self.process_set_id is None:
            return None
        if not self.included():
            raise ValueError(f"rank {basics.rank()} is no member of {self!r}")
        return self._ranks.index(basics.rank())

    def included(self) -> bool:
        """Returns whether this process is a member of it and the job knows it. ValueError before init."""
        return self.process_set_id is not None and basics.rank() in self._ranks

    def takes_part(self) -> bool:
        """Returns whether this process is a member, for what only members do, as an optimizer reduces gradients. False where
        no process of the set is left in an elastic job.

        Raises:
            ValueError: the job does not know the set, so that each rank would go on by itself; or it is before init.
        """
        if self.process_set_id is None and not self.is_gone:
            raise ValueError(
                f"{self!r} is not known to the job, so its ranks would train without each other; pass it to "
                "hvd.init(process_sets=[...]), or to hvd.add_process_set() on every rank, before"
            )
        return self.included()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcessSet):
            return NotImplemented
        return self.process_set_id == other.process_set_id and self._ranks == other._ranks

    def __hash__(self) -> int:
        return hash(None if self._ranks is None else tuple(self._ranks))

    def __deepcopy__(self, _: object) -> "ProcessSet":
        """Returns the set itself: a copied optimizer reduces over the same ranks."""
        return self

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self._ranks})"

    def __str__(self) -> str:
        """Returns Horovod's text, which its own tests and programs' logs have."""
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self._ranks}, mpi_comm={self.mpi_comm})"


class _GlobalProcessSet(ProcessSet):
    """_GlobalProcessSet is all ranks."""

    def __init__(self) -> None:
        self.process_set_id = 0
        self._ranks = None

    @property
    def ranks(self) -> List[int]:
        return list(range(basics.size()))

    def size(self) -> int:
        return basics.size()

    def rank(self) -> int:
        return basics.rank()

    def included(self) -> bool:
        return basics.rank() >= 0

    def __reduce__(self) -> str:
        return "global_process_set"

    def __repr__(self) -> str:
        return "ProcessSet(process_set_id=0)"

    def __str__(self) -> str:
        ranks = self.ranks if basics.is_initialized() else []
        return f"ProcessSet(process_set_id=0, ranks={ranks}, mpi_comm={self.mpi_comm})"


global_process_set: ProcessSet = _GlobalProcessSet()

# The process sets that the job knows. They lose their numbers when this process leaves the job.
_known: Set[ProcessSet] = set()


def number_of(process_set: ProcessSet) -> int:
    """Returns the library's number for it. ValueError for anything else, and for a set that the job does not know."""
    number = process_set.process_set_id if isinstance(process_set, ProcessSet) else None
    if getattr(process_set, "is_gone", False):
        raise ValueError(f"{process_set!r}: none of the processes that it was made of is left in the job")
    if number != 0 and not any(number == known.process_set_id for known in list(_known)):  # 0: all ranks
        raise ValueError(
            f"process_set={process_set!r} is not known to the job; call hvd.add_process_set on every rank, or "
            "hvd.init(process_sets=[...])"
        )
    return number
