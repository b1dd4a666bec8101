"""What a model remembers of the columns that it was trained with, in the form that Horovod's models have.

For each column: `spark_data_type` (a class; vectors are DenseVector or SparseVector), `shape` (values of a row, None where a
row has one), `intermediate_format`, `max_size` and `is_sparse_vector_only`.
"""

from typing import Any, Dict, Iterable, Optional, Sequence

import numpy
from pyspark.ml.linalg import DenseVector, SparseVector, VectorUDT
from pyspark.sql import types

from horovod.spark.common import constants

_BY_DTYPE = {
    "bool": types.BooleanType, "int8": types.ByteType, "int16": types.ShortType, "int32": types.IntegerType,
    "int64": types.LongType, "float32": types.FloatType, "float64": types.DoubleType,
    # As Spark reads them: it has no unsigned numbers, so each becomes the next wider type.
    "uint8": types.ShortType, "uint16": types.IntegerType, "uint32": types.LongType, "uint64": types.DecimalType,
    "float16": types.FloatType,
}  # fmt: skip


def metadata_of(columns: Iterable[Any], schema: Optional[Any] = None) -> Dict[str, Dict[str, Any]]:
    """Of a dataset's columns; `schema`: of the frame that it was made of, if there is one."""
    return {column.name: _facts(column, schema) for column in columns}


def _facts(column: Any, schema: Optional[Any]) -> Dict[str, Any]:
    names = schema.fieldNames() if schema is not None else []
    spark_type = type(schema[column.name].dataType) if column.name in names else None
    is_sparse = column.kind == "sparse"
    if spark_type is VectorUDT or column.kind in ("vector", "sparse"):
        kind: Any = SparseVector if is_sparse else DenseVector
    elif spark_type is not None:
        kind = spark_type
    elif column.width is not None:
        kind = types.ArrayType
    else:
        kind = _BY_DTYPE.get(column.dtype, types.StringType)
    is_vector = kind in (DenseVector, SparseVector)
    return {
        "spark_data_type": kind,
        "is_sparse_vector_only": is_sparse,
        "shape": column.width or 1 if is_vector else column.width,
        "intermediate_format": constants.CUSTOM_SPARSE if is_sparse else constants.ARRAY if is_vector
        else constants.NOCHANGE,
        "max_size": column.width or 1,
    }  # fmt: skip


def is_whole(spark_type: type) -> bool:
    """Whether values of the type are whole numbers."""
    return issubclass(spark_type, types.IntegralType)


def scalar_type(spark_type: type) -> Any:
    """The type of a column with predictions of a label of that type."""
    if spark_type in (DenseVector, SparseVector) or issubclass(spark_type, (types.ArrayType, types.DecimalType)):
        return types.DoubleType()
    return spark_type()


# A batch of one row would leave a batch norm without variance, and a label without a clear batch dimension.
_ZERO_ROWS = 2


def zeros(columns: Iterable[Any], names: Sequence[str]) -> Dict[str, numpy.ndarray]:
    """Two rows of zeros of a dataset's columns. ValueError: a column has no numbers."""
    batch = {}
    for column in columns:
        if column.name not in names:
            continue
        if column.dtype == "object" or column.kind == "time":
            raise ValueError(
                f"column {column.name!r} is of kind {column.kind}, which no model takes: make numbers of it, with "
                "transformation_fn or before fit()"
            )
        shape = (_ZERO_ROWS,) if column.width is None else (_ZERO_ROWS, column.width)
        batch[column.name] = numpy.zeros(shape, column.dtype)
    return batch
