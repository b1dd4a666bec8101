"""What a column holds, and how Arrow's values of it become an array of numpy.

Numbers and lists of one length come out without a copy where Arrow's memory allows it. What cannot be read is refused
by the column's name: nested rows, nulls without a value to put in their place, lists of several lengths.
"""

import dataclasses
from typing import Any, Iterator, List, Optional, Sequence, Tuple

import numpy

# A sparse vector is stored as two columns, whose names begin with these.
INDICES = "__hvd_indices_"
VALUES = "__hvd_values_"

_OBJECTS = ("string", "binary")
# The bytes of a row beside its values: the head of a Python object and what points to it; a sparse row's begin and length.
_OBJECT_HEAD = 64
_SPARSE_HEAD = 16


@dataclasses.dataclass(frozen=True)
class Column:
    """kind: "number", "time", "list", "vector" (of Spark ML, stored as a list), "sparse", "string" or "binary".

    dtype: numpy's name of the type of the values that the reader gives out; "object" for strings and binaries.
    width: how many values a row has, for lists and vectors.
    """

    name: str
    kind: str
    dtype: str
    width: Optional[int] = None

    @property
    def stored(self) -> Tuple[str, ...]:
        """The names of what stands in the files."""
        return (INDICES + self.name, VALUES + self.name) if self.kind == "sparse" else (self.name,)

    @property
    def is_varying(self) -> bool:
        """Whether rows differ in what they take."""
        return self.kind in _OBJECTS or self.kind == "sparse"

    @property
    def row_bytes(self) -> int:
        """How much memory a row takes in a pool of the reader; its values come on top where rows differ in them."""
        if self.is_varying:
            return _SPARSE_HEAD if self.kind == "sparse" else _OBJECT_HEAD
        return self.dense_bytes

    @property
    def dense_bytes(self) -> int:
        """How much memory a row takes in a batch; of an object, what points to it."""
        return numpy.dtype(self.dtype).itemsize * (1 if self.width is None else self.width)

    def empty(self, rows: int) -> Any:
        """An array for so many rows."""
        if self.kind == "sparse":
            return SparseRows(rows, self.width or 0, self.dtype)
        return numpy.empty((rows,) if self.width is None else (rows, self.width), numpy.dtype(self.dtype))


class SparseRows:
    """The rows of a sparse column as the files have them. They become dense where a batch takes them: a pool of dense rows
    would need many times its size in the files."""

    def __init__(self, rows: int, width: int, dtype: str) -> None:
        self._width, self._dtype = width, dtype
        # Where each row's values begin in those of all rows, and how many there are.
        self._begins = numpy.zeros(rows, numpy.int64)
        self._counts = numpy.zeros(rows, numpy.int32)
        self._stored: List[Tuple[Any, Any]] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._begins)

    def __setitem__(self, at: Any, rows: Tuple[Any, Any, Any]) -> None:
        """`rows`: how many values each has, and the indices and values of all."""
        counts, indices, values = rows
        self._begins[at] = self._size + numpy.cumsum(counts, dtype=numpy.int64) - counts
        self._counts[at] = counts
        self._stored.append((indices, values))
        self._size += len(values)

    def __getitem__(self, at: Any) -> Any:
        """These rows as a dense array."""
        counts = self._counts[at]
        dense = numpy.zeros((len(counts), self._width), self._dtype)
        indices, values = self._joined()
        # Of each value: its row, and its place among the values of all rows.
        rows = numpy.repeat(numpy.arange(len(counts)), counts)
        first = numpy.cumsum(counts, dtype=numpy.int64) - counts
        places = numpy.arange(len(rows)) + numpy.repeat(self._begins[at] - first, counts)
        dense[rows, indices[places]] = values[places]
        return dense

    def _joined(self) -> Tuple[Any, Any]:
        if len(self._stored) > 1:
            indices, values = zip(*self._stored)
            self._stored = [(numpy.concatenate(indices), numpy.concatenate(values))]
        return self._stored[0]


def _number(kind: Any) -> Optional[str]:
    """numpy's name for one of Arrow's types that are numbers."""
    import pyarrow.types as types

    if types.is_boolean(kind):
        return "bool"
    if types.is_integer(kind) or types.is_floating(kind):
        return str(numpy.dtype(kind.to_pandas_dtype()))
    # Tensors cannot hold decimals.
    return "float64" if types.is_decimal(kind) else None


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def from_arrow(field: Any) -> Column:
    """What Arrow's field holds. ValueError for what cannot be read."""
    import pyarrow.types as types

    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    number = _number(kind)
    if number is not None:
        return Column(field.name, "number", number)
    if types.is_date(kind) or types.is_timestamp(kind):
        return Column(field.name, "time", "datetime64[D]" if types.is_date(kind) else "datetime64[us]")
    if types.is_string(kind) or types.is_large_string(kind):
        return Column(field.name, "string", "object")
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return Column(field.name, "binary", "object")
    if _is_list(kind) and _number(kind.value_type) is not None:
        width = kind.list_size if types.is_fixed_size_list(kind) else None
        return Column(field.name, "list", _number(kind.value_type), width)
    raise ValueError(
        f"column {field.name!r} is of type {field.type}, which cannot be read for training; "
        "make columns of numbers or lists of numbers of it first"
    )


def leaf_names(footer: Any) -> List[str]:
    """Of each column of values in a footer, the name of the field that it belongs to; names may have dots."""

    def leaves(kind: Any) -> int:
        return sum(leaves(kind.field(i).type) for i in range(kind.num_fields)) or 1

    return [field.name for field in footer.schema.to_arrow_schema() for _ in range(leaves(field.type))]


class FooterFacts:
    """What the footers of all files say about a column: whether it has nulls, and how long its lists are."""

    def __init__(self, footers: Sequence[Any]) -> None:
        self._footers = [(footer, leaf_names(footer)) for footer in footers]

    def completed(self, column: Column) -> Column:
        """With the width of its lists. ValueError when the footers show nulls, or several widths."""
        # An empty list counts as a null there, and a sparse vector may be empty.
        nulls = self._nulls(column.name) if column.kind != "sparse" else 0
        if nulls:
            raise ValueError(f"column {column.name!r} has {nulls} nulls or empty lists; "
                             "give a value for them, or drop those rows")  # fmt: skip
        if column.kind not in ("list", "vector") or column.width is not None:
            return column
        # The number of values in each row, by row group; it is a fraction where rows differ.
        widths = {chunk.num_values / rows for chunk, rows in self._chunks(column.name)}
        if len(widths) != 1 or not min(widths).is_integer():
            said = ", ".join(f"{width:g}" for width in sorted(widths)[:4])
            raise ValueError(f"the lists of column {column.name!r} have several lengths (on average {said} in a row "
                             "group); pad or cut them to one length")  # fmt: skip
        return dataclasses.replace(column, width=int(widths.pop()))

    def _chunks(self, name: str) -> Iterator[Tuple[Any, int]]:
        """What the footers say of a column in each row group that has rows, and the rows."""
        for footer, names in self._footers:
            for index in range(footer.num_row_groups):
                group = footer.row_group(index)
                if group.num_rows:
                    yield group.column(names.index(name)), group.num_rows

    def _nulls(self, name: str) -> int:
        """How many the footers count; where they do not count the reader sees them."""
        said = (chunk.statistics for chunk, _ in self._chunks(name))
        return sum(facts.null_count for facts in said if facts is not None and facts.has_null_count)


def _values(array: Any) -> Any:
    """Arrow's numbers, of which none is null, as an array of numpy. Arrow's own way loads pandas, which a rank may not need."""
    import pyarrow.types as types

    if not len(array) or not (types.is_integer(array.type) or types.is_floating(array.type)):
        return array.to_numpy(zero_copy_only=False)
    kind = numpy.dtype(array.type.to_pandas_dtype())
    return numpy.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)


class Decoder:
    """Makes numpy arrays of one column's Arrow values. `fill`: stands for nulls; None: they are an error."""

    def __init__(self, column: Column, fill: Any = None) -> None:
        self.column = column
        self._fill = fill
        self._decode = getattr(self, f"_{'object' if column.kind in _OBJECTS else column.kind}")

    def __call__(self, values: Sequence[Any], where: str) -> Any:
        """`values`: Arrow's arrays of what is stored, of the same rows; `where`: file and row group, for errors."""
        return self._decode(*values, where)

    def _refuse(self, what: str, where: str) -> ValueError:
        return ValueError(f"column {self.column.name!r} {what} in {where}")

    def _without_nulls(self, array: Any, where: str) -> Any:
        import pyarrow.types as types

        if types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if array.null_count == 0:
            return array
        if self._fill is None:
            raise self._refuse(f"has {array.null_count} nulls", where + "; give a value for them, or drop those rows")
        return array.fill_null(self._fill)

    def _typed(self, values: Any, where: str) -> Any:
        # A number of fewer digits is still that number; a whole number that does not fit becomes another one.
        is_close = values.dtype.kind == numpy.dtype(self.column.dtype).kind == "f"
        if not is_close and not numpy.can_cast(values.dtype, self.column.dtype, "safe"):
            raise self._refuse(f"is {values.dtype}, not {self.column.dtype},", where)
        return values.astype(self.column.dtype, copy=False)

    def _number(self, array: Any, where: str) -> Any:
        import pyarrow
        import pyarrow.types as types

        array = self._without_nulls(array, where)
        if types.is_decimal(array.type):
            array = array.cast(pyarrow.float64())
        return self._typed(_values(array), where)

    def _time(self, array: Any, where: str) -> Any:
        return self._without_nulls(array, where).to_numpy(zero_copy_only=False).astype(self.column.dtype)

    def _object(self, array: Any, where: str) -> Any:
        return self._without_nulls(array, where).to_numpy(zero_copy_only=False)

    def _list(self, array: Any, where: str) -> Any:
        import pyarrow.types as types

        if array.null_count:
            raise self._refuse(f"has {array.null_count} nulls", where + "; drop those rows")
        width = self.column.width
        if types.is_fixed_size_list(array.type):
            same = array.type.list_size == width
        else:
            same = bool((numpy.diff(_values(array.offsets)) == width).all())
        if not same:
            raise self._refuse(f"has lists that are not of {width} values", where)
        return self._number(array.flatten(), where).reshape(len(array), width)

    _vector = _list

    def _sparse(self, indices: Any, values: Any, where: str) -> Any:
        if indices.null_count or values.null_count:
            raise self._refuse("has nulls", where + "; drop those rows")
        counts = numpy.diff(_values(indices.offsets))
        places = self._whole(indices.flatten(), where)
        if len(places) and (places.min() < 0 or places.max() >= self.column.width):
            raise self._refuse(f"has an index outside its {self.column.width} values", where)
        return counts, places, self._typed(self._whole(values.flatten(), where), where)

    def _whole(self, array: Any, where: str) -> Any:
        return _values(self._without_nulls(array, where))
