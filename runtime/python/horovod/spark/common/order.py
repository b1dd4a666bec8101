"""Which rows a rank reads in an epoch, and in which order. Pure: no file is opened here.

The row groups are put in an order that the seed and the epoch decide, the same on all ranks, and laid end to end in a
ring. Each rank owns one stretch of it, so a row belongs to one rank; a group that a border cuts is read by both
neighbours. Where rows are left out, the first rank's stretch begins at a row that seed and epoch decide too: others are
left out each time, also where there is only one group.
A rank takes its stretch in pools of a few groups and shuffles the rows of each pool. Its batches are cut from the line
of shuffled pools, so that batch number s begins at row s * batch, whatever was read before: that is what lets a job
resume.
"""

import dataclasses
from typing import List, Sequence, Tuple

import numpy

# The purposes of the streams of random numbers.
_GROUPS, _ROWS, _BEGIN = 1, 2, 3


@dataclasses.dataclass(frozen=True)
class Segment:
    """Rows [begin, end) of a group, by its number in the data set."""

    group: int
    begin: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.begin


@dataclasses.dataclass(frozen=True)
class Pool:
    """What is read and shuffled at once. `first`: which row of the rank's epoch it begins with."""

    number: int
    first: int
    segments: Tuple[Segment, ...]

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)


def _stream(seed: int, epoch: int, use: int, *more: int) -> numpy.random.SeedSequence:
    return numpy.random.SeedSequence([seed & 0xFFFFFFFFFFFFFFFF, epoch, use, *more])


def group_order(count: int, seed: int, epoch: int) -> numpy.ndarray:
    """A permutation of the groups. It is made of raw random bits, which are the same in every version of numpy: ranks
    may differ in it, and must agree here."""
    bits = numpy.random.Philox(_stream(seed, epoch, _GROUPS)).random_raw(count)
    return numpy.argsort(bits, kind="stable")


def first_row(rows: int, seed: int, epoch: int) -> int:
    """Where on the ring of so many rows the first rank's stretch begins; of raw bits, as group_order()."""
    return int(numpy.random.Philox(_stream(seed, epoch, _BEGIN)).random_raw(1)[0]) % rows


def row_order(rows: int, seed: int, epoch: int, rank: int, pool: int) -> numpy.ndarray:
    """A permutation of a pool's rows."""
    return numpy.random.Generator(numpy.random.PCG64(_stream(seed, epoch, _ROWS, rank, pool))).permutation(rows)


@dataclasses.dataclass(frozen=True)
class Share:
    """How the rows of a data set are shared: the same numbers on all ranks but for `rank`."""

    rows: int
    rank: int
    size: int
    batch: int
    pad: bool

    @property
    def steps(self) -> int:
        """Of an epoch; equal on all ranks. Without padding what does not fill a batch on each rank is left out."""
        each = self.batch * self.size
        return -(-self.rows // each) if self.pad else self.rows // each

    @property
    def leaves_out(self) -> bool:
        return not self.pad and self.steps * self.batch * self.size < self.rows

    def stretch(self, rank: int) -> Tuple[int, int]:
        """The rows [begin, end) of the line that a rank owns."""
        if self.pad:
            return self.whole_stretch(rank)
        count = self.steps * self.batch
        return rank * count, (rank + 1) * count

    def whole_stretch(self, rank: int) -> Tuple[int, int]:
        """The same when no row is left out."""
        return self.rows * rank // self.size, self.rows * (rank + 1) // self.size

    @property
    def begin(self) -> int:
        return self.stretch(self.rank)[0]

    @property
    def own(self) -> int:
        begin, end = self.stretch(self.rank)
        return end - begin


def segments(groups: Sequence[int], begin: int, end: int, order: Sequence[int]) -> List[Segment]:
    """What the rows [begin, end) of the ring are, where it is the groups in that order. `groups`: their rows. Rows are
    counted on past the last one of the ring."""
    sizes = numpy.asarray(groups, dtype=numpy.int64)[order]
    ends = numpy.cumsum(sizes)
    rows = int(ends[-1])
    if end > rows:
        return [*(segments(groups, begin, rows, order) if begin < rows else ()),
                *segments(groups, max(begin - rows, 0), end - rows, order)]  # fmt: skip
    found = []
    for place in range(int(numpy.searchsorted(ends, begin, side="right")), len(sizes)):
        first = int(ends[place] - sizes[place])
        if first >= end:
            break
        found.append(Segment(int(order[place]), max(begin - first, 0), min(end - first, int(sizes[place]))))
    return found


def pools(pieces: Sequence[Segment], groups_a_pool: int) -> List[Pool]:
    made: List[Pool] = []
    first = 0
    for number in range(0, -(-len(pieces) // groups_a_pool)):
        made.append(Pool(number, first, tuple(pieces[number * groups_a_pool : (number + 1) * groups_a_pool])))
        first += made[-1].rows
    return made
