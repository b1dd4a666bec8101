"""transform(): adds a trained model's outputs to a DataFrame, in batches of Arrow's columns.

The rest of a row goes through untouched. The model travels once to each executor and is unpickled once in each of its Python
processes. Vectors are made lists and lists vectors again by Spark itself, which needs no Python for that.
"""

import hashlib
import pickle
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Union

import cloudpickle
import numpy

from horovod.spark.common.columns import Decoder, from_arrow

# A model's batch is of no more than these: large enough that a call's cost is shared, small enough for the memory of what a
# model makes of it, which is many times that of an image.
BATCH_ROWS = 1024
BATCH_BYTES = 16 * 1024 * 1024

# Models that this process has unpickled, the most recent one last.
_loaded: Dict[str, Any] = {}
_MAX_LOADED = 2

# What an output has for the rows of a batch: an array, or one array for each row where rows may differ in width.
Values = Union[numpy.ndarray, List[numpy.ndarray]]
# A function from the arrays of a batch's features to the values of each output.
Predictor = Callable[[Dict[str, numpy.ndarray]], Sequence[Values]]

VECTOR = "vector"
SCALAR = "scalar"


class Output:
    """A column that is added. `kind`: VECTOR, or SCALAR of the Spark type `spark_type`, rounded where `is_whole`."""

    def __init__(self, name: str, kind: str, spark_type: Any = None, is_whole: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.spark_type = spark_type
        self.is_whole = is_whole

    def values(self, of_rows: Values, arrow_type: Any) -> Any:
        """As Arrow's column of the rows. ValueError: a row has several values where the column is of numbers."""
        import pyarrow

        widths = numpy.array([numpy.size(row) for row in of_rows], numpy.int64)
        flat = of_rows.reshape(-1) if isinstance(of_rows, numpy.ndarray) else numpy.concatenate(of_rows)
        if self.kind == SCALAR:
            if (widths != 1).any():
                raise ValueError(f"column {self.name!r} is of single numbers, and the model gave {widths[widths != 1][0]} for a row of it")
            values = numpy.rint(flat) if self.is_whole else flat
            if pyarrow.types.is_boolean(arrow_type) and values.dtype.kind == "f":
                values = values >= 0.5  # a probability; a cast would make all but 0 true
            return pyarrow.array(values).cast(arrow_type)
        offsets = numpy.concatenate([[0], numpy.cumsum(widths)]).astype(numpy.int32)
        values = pyarrow.array(numpy.ascontiguousarray(flat, numpy.float64))
        return pyarrow.ListArray.from_arrays(pyarrow.array(offsets), values)


class Carrier:
    """Takes a predictor to the executors: by a broadcast, or inside the function where there is none (Spark Connect)."""

    def __init__(self, predictor: Predictor, session: Any) -> None:
        payload = cloudpickle.dumps(predictor)
        self._digest = hashlib.sha256(payload).hexdigest()
        context = getattr(session, "_sc", None)
        self._broadcast = context.broadcast(payload) if context is not None else None
        self._payload: Optional[bytes] = None if context is not None else payload

    def get(self) -> Predictor:
        """In a Python process of an executor."""
        if self._digest not in _loaded:
            payload = self._broadcast.value if self._broadcast is not None else self._payload
            while len(_loaded) >= _MAX_LOADED:
                del _loaded[next(iter(_loaded))]
            _loaded[self._digest] = pickle.loads(payload)
        return _loaded[self._digest]


def transform(frame: Any, predictor: Predictor, features: Sequence[str], outputs: Sequence[Output]) -> Any:
    """The frame with a column for each output."""
    return _transform(frame, predictor, features, outputs, _Arrays)


def transform_rows(frame: Any, predictor: Any, outputs: Sequence[Output]) -> Any:
    """As transform(), with a predictor that takes a list of Spark's rows, whole as they are."""
    return _transform(frame, predictor, frame.columns, outputs, _Rows)


def widths_in_first_row(frame: Any, names: Sequence[str], transformed: Callable[[Any, List[Output]], Any]) -> List[int]:
    """How many values each output has, by the first row of the frame; 1 each without a row. `transformed`: transform() or
    transform_rows(), of a frame and its outputs."""
    from horovod.spark.common.spark_columns import quoted

    first = transformed(frame.limit(1), [Output(name, VECTOR) for name in names])
    rows = first.select(*[quoted(name) for name in names]).collect()
    return [len(value) for value in rows[0]] if rows else [1] * len(names)


def _transform(frame: Any, predictor: Any, features: Sequence[str], outputs: Sequence[Output], reader: Any) -> Any:
    from pyspark.ml.functions import array_to_vector, vector_to_array
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql import functions, types

    from horovod.spark.common.spark_columns import quoted

    lacking = [name for name in features if name not in frame.columns]
    taken = [output.name for output in outputs if output.name in frame.columns]
    if lacking or taken:
        what = f"has no column {lacking[0]!r}" if lacking else f"has a column {taken[0]!r} already; see setOutputCols()"
        raise ValueError(f"transform: the DataFrame {what}")
    kept = frame.schema.fields
    vectors = [name for name in features if isinstance(frame.schema[name].dataType, VectorUDT)]
    lists = [vector_to_array(frame[quoted(name)], "float32") for name in vectors if reader.wants_lists]
    # Spark's function does not take a null.
    lists = [functions.when(frame[quoted(name)].isNotNull(), values) for name, values in zip(vectors, lists)]
    wide = frame.select("*", *lists)
    # Columns are known by their places: mapInArrow of Spark 3 takes a dot in a name for one of a struct's fields.
    wide = wide.toDF(*[f"_{place}" for place in range(len(wide.columns))])
    lists_at = {name: len(kept) + number for number, name in enumerate(vectors) if reader.wants_lists}
    places = {name: lists_at.get(name, frame.columns.index(name)) for name in features}
    added = [types.StructField(output.name, output.spark_type or types.ArrayType(types.DoubleType()), True)
             for output in outputs]  # fmt: skip
    run = _Run(Carrier(predictor, frame.sparkSession), reader(places, vectors), [field.name for field in kept], list(outputs))
    result = wide.mapInArrow(run, types.StructType([*kept, *added]))
    if not any(output.kind == VECTOR for output in outputs):
        return result
    new = {output.name: array_to_vector(result[quoted(output.name)]).alias(output.name) for output in outputs
           if output.kind == VECTOR}  # fmt: skip
    return result.select(*[new.get(name, result[quoted(name)]) for name in result.columns])


class _Arrays:
    """A batch as the arrays of its features."""

    wants_lists = True  # of vectors

    def __init__(self, places: Dict[str, int], vectors: Sequence[str]) -> None:
        self.places = places

    def __call__(self, batch: Any) -> Dict[str, numpy.ndarray]:
        return {name: _array(batch, name, place) for name, place in self.places.items()}


class _Rows:
    """A batch as Spark's rows. A vector within a struct or list is there as what Spark stores of it, and bytes are bytes."""

    wants_lists = False

    def __init__(self, places: Dict[str, int], vectors: Sequence[str]) -> None:
        self.places = places
        self._vectors = frozenset(vectors)

    def __call__(self, batch: Any) -> List[Any]:
        from pyspark.sql import Row

        row = Row(*self.places)
        columns = []
        for name, place in self.places.items():
            values, make = batch.column(place), _maker_of(batch.schema.field(place).type)
            make = _vector if name in self._vectors else make
            columns.append([None if value is None else make(value) for value in values.to_pylist()])
        return [row(*values) for values in zip(*columns)]


def _vector(stored: Dict[str, Any]) -> Any:
    from pyspark.ml.linalg import VectorUDT

    return VectorUDT().deserialize(tuple(stored[name] for name in ("type", "size", "indices", "values")))


def _maker_of(kind: Any) -> Callable[[Any], Any]:
    """A function that makes what Spark has in its rows of a value, not None, as Arrow gives it for a column of type `kind`."""
    from pyarrow import types
    from pyspark.sql import Row

    def of_all(made: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda value: None if value is None else made(value)

    if types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        row = Row(*[field.name for field in fields])
        makers = [(field.name, of_all(_maker_of(field.type))) for field in fields]
        return lambda value: row(*[make(value[name]) for name, make in makers])
    if types.is_map(kind):  # pairs, to Arrow
        of_key, of_item = _maker_of(kind.key_type), of_all(_maker_of(kind.item_type))
        return lambda value: {of_key(key): of_item(item) for key, item in value}
    if types.is_list(kind) or types.is_large_list(kind):
        of_each = of_all(_maker_of(kind.value_type))
        return lambda value: [of_each(each) for each in value]
    if types.is_timestamp(kind) and kind.tz is not None:  # without a zone, in local time, to Spark
        return lambda value: value.astimezone().replace(tzinfo=None)
    return lambda value: value


class _Run:
    """What each partition's rows go through."""

    def __init__(self, carrier: Carrier, reader: Any, kept: List[str], outputs: List[Output]) -> None:
        self._carrier = carrier
        self._reader = reader
        self._kept = kept
        self._outputs = outputs

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        predictor = self._carrier.get()
        for batch in batches:
            count = self._rows_at_once(batch)
            for begin in range(0, batch.num_rows, count):
                yield self._with_outputs(predictor, batch.slice(begin, count))

    def _rows_at_once(self, batch: Any) -> int:
        size = sum(batch.column(place).nbytes for place in self._reader.places.values())
        return max(1, min(BATCH_ROWS, BATCH_BYTES * batch.num_rows // max(size, 1)))

    def _with_outputs(self, predictor: Predictor, rows: Any) -> Any:
        import pyarrow

        results = predictor(self._reader(rows))
        columns = rows.columns[: len(self._kept)]
        for output, values in zip(self._outputs, results):
            columns.append(output.values(values, _arrow_type(output)))
        names = [*self._kept, *[output.name for output in self._outputs]]
        return pyarrow.RecordBatch.from_arrays(columns, names)


def _arrow_type(output: Output) -> Any:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(output.spark_type) if output.kind == SCALAR else None


def _array(rows: Any, name: str, index: int) -> numpy.ndarray:
    import dataclasses

    values, column = rows.column(index), from_arrow(rows.schema.field(index))
    column = dataclasses.replace(column, name=name)
    if column.kind == "list" and column.width is None:
        width = (values.offsets[1].as_py() - values.offsets[0].as_py()) if len(values) else 0
        column = dataclasses.replace(column, width=width)
    return Decoder(column)((values,), "this DataFrame")


def zeros_like(frame: Any, features: Sequence[str], shapes: Any, metadata: Optional[Dict[str, Any]]) -> Any:
    """Two rows of zeros of the features: their width is said by the model's metadata, or else by the input's shape."""
    batch = {}
    for name, shape in zip(features, shapes or [None] * len(features)):
        width = (metadata or {}).get(name, {}).get("shape")
        if width is None and shape is not None:
            row = [size for size in shape if size != -1]
            width = int(numpy.prod(row)) if row and row != [1] else None
        kind = frame.schema[name].dataType.typeName() if name in frame.columns else "float"
        dtype = numpy.int64 if kind in ("byte", "short", "integer", "long", "tinyint", "smallint") else numpy.float32
        batch[name] = numpy.zeros((2,) if width is None else (2, width), dtype)
    return batch


def output_of(name: str, width: int, metadata: Optional[Dict[str, Any]]) -> Output:
    """What an output becomes: a number of the label's type, or a vector where the label is one or a row has several values."""
    from pyspark.ml.linalg import DenseVector, SparseVector
    from pyspark.sql import types

    from horovod.spark.common import schema

    label_type = metadata["spark_data_type"] if metadata else types.FloatType
    if width != 1 or label_type in (DenseVector, SparseVector):
        return Output(name, VECTOR)
    return Output(name, SCALAR, schema.scalar_type(label_type), schema.is_whole(label_type))
