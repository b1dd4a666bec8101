"""What Spark's columns become in the files: the expressions that write them, and what the reader is told of them.

All of it runs in Spark's JVM; no row passes through Python.
"""

from typing import Any, Dict, List, Optional, Tuple

from horovod.spark.common.columns import INDICES, VALUES, Column

_NUMBERS = {"boolean": "bool", "tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64",
            "float": "float32", "double": "float64"}  # fmt: skip
_TIMES = {"date": "datetime64[D]", "timestamp": "datetime64[us]", "timestamp_ntz": "datetime64[us]"}
# Models compute in it, as Horovod's estimators do; Spark's vectors are of doubles.
_VECTOR_DTYPE = "float32"


def _number(kind: str) -> Optional[str]:
    return "float64" if kind.startswith("decimal") else _NUMBERS.get(kind)


def described(field: Any, compress_sparse: bool = False) -> Column:
    """What a field of Spark's schema holds. ValueError for what cannot be read."""
    kind = field.dataType.simpleString()
    if kind == "vector":
        return Column(field.name, "sparse" if compress_sparse else "vector", _VECTOR_DTYPE)
    if _number(kind) is not None:
        return Column(field.name, "number", _number(kind) or "")
    if kind in _TIMES:
        return Column(field.name, "time", _TIMES[kind])
    if kind == "string" or kind.startswith(("char", "varchar")):
        return Column(field.name, "string", "object")
    if kind == "binary":
        return Column(field.name, "binary", "object")
    element = kind[len("array<") : -1] if kind.startswith("array<") else ""
    if _number(element) is not None:
        return Column(field.name, "list", _number(element) or "")
    raise ValueError(
        f"column {field.name!r} is of type {kind}, which cannot be read for training; "
        "make columns of numbers, vectors or arrays of numbers of it first"
    )


def quoted(name: str) -> str:
    """A name with a dot is one column's."""
    return "`" + name.replace("`", "``") + "`"


def written(column: Column, field: Any, fill: Optional[Any]) -> List[Any]:
    """The expressions of what is stored of a column."""
    from pyspark.sql import functions as F

    value = F.col(quoted(column.name))
    kind = field.dataType.simpleString()
    if column.kind == "sparse":
        indices, values = _sparse(value)
        return [indices.alias(INDICES + column.name), values.cast("array<float>").alias(VALUES + column.name)]
    if column.kind == "vector":
        from pyspark.ml.functions import vector_to_array

        value = F.when(value.isNotNull(), vector_to_array(value, _VECTOR_DTYPE))  # a null is refused by its column's name
    elif "decimal" in kind:
        value = value.cast("array<double>" if column.kind == "list" else "double")
    if fill is not None:
        value = F.coalesce(value, F.lit(fill).cast(kind if "decimal" not in kind else "double"))
    return [value.alias(column.name)]


def _sparse(value: Any) -> Tuple[Any, Any]:
    """Indices and values of a vector; a dense one has all indices."""
    from pyspark.sql import functions as F

    inside = F.unwrap_udt(value)
    values = inside["values"]
    size = F.size(values)
    every = F.when(size > 0, F.sequence(F.lit(0), size - 1)).otherwise(F.array().cast("array<int>"))
    return F.when(inside["type"] == 0, inside["indices"]).otherwise(every), values


def told_width(field: Any) -> Optional[int]:
    """How many values a vector has, where the stage of Spark ML that made the column has said so."""
    said = field.metadata.get("ml_attr")
    return said.get("num_attrs") if isinstance(said, dict) else None


def widths(columns: List[Column]) -> Dict[str, Tuple[Any, Any]]:
    """Aggregates over the frame to write: the smallest and the largest number of values in a row, by column."""
    from pyspark.sql import functions as F

    found = {}
    for column in columns:
        if column.kind in ("list", "vector"):
            size = F.size(F.col(quoted(column.name)))
            found[column.name] = (F.min(size), F.max(size))
    return found


def vector_width(frame: Any, name: str) -> Tuple[int, int]:
    """The smallest and the largest size of a vector column, by one aggregate: what is stored of a sparse one does
    not say."""
    from pyspark.sql import functions as F

    inside = F.unwrap_udt(F.col(quoted(name)))
    size = F.when(inside["type"] == 0, inside["size"]).otherwise(F.size(inside["values"]))
    nulls = F.count(F.when(F.col(quoted(name)).isNull(), 1))
    low, high, nulls = frame.agg(F.min(size), F.max(size), nulls).collect()[0]
    if nulls:
        raise ValueError(f"column {name!r} has {nulls} nulls; drop those rows")
    return (low or 0), (high or 0)
