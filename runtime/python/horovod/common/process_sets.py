"""Process sets: named subsets of the ranks. So far there is one, the set of all ranks."""

from typing import List

from horovod.common import basics


class ProcessSet:
    """A set of ranks that run an operation together. Today only `global_process_set` can be given to an operation."""

    def __init__(self, process_set_id: int) -> None:
        self.process_set_id = process_set_id

    @property
    def ranks(self) -> List[int]:
        """The members, in order. ValueError before init."""
        return list(range(basics.size()))

    def size(self) -> int:
        """How many members it has. ValueError before init."""
        return basics.size()

    def rank(self) -> int:
        """This process's number among the members. ValueError before init."""
        return basics.rank()

    def included(self) -> bool:
        """Whether this process is a member. ValueError before init."""
        return basics.rank() >= 0

    def __deepcopy__(self, _: object) -> "ProcessSet":
        """A copied optimizer reduces over the same ranks."""
        return self

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id})"


global_process_set = ProcessSet(0)


def number_of(process_set: ProcessSet) -> int:
    """What the library calls it. ValueError unless it is the global process set."""
    if process_set is not global_process_set:
        raise ValueError(
            f"process_set={process_set!r}: only hvd.global_process_set is supported yet; other process sets are not "
            "there"
        )
    return 0
