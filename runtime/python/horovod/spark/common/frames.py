"""What Horovod's util says of DataFrames, for programs and tests that call it by those names; util.py has the names.

The estimators prepare data by materialise.prepare(), as util.prepare_data() does, and look at no row in Python.
"""

import os
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy
from pyspark.ml.linalg import DenseVector, SparseVector, Vector, VectorUDT
from pyspark.sql import types

from horovod.spark.common import constants
from horovod.spark.common.cache import TrainingDataCache
from horovod.spark.common.estimator import check_validation
from horovod.spark.common.store import wait_for_files as _wait_file_available_on_dbfs  # noqa: F401  Horovod's name

__all__ = ["check_shape_compatibility", "check_validation", "clear_training_cache", "get_dataset_properties",
           "to_petastorm_fn"]  # fmt: skip

_training_cache = TrainingDataCache()


def check_shape_compatibility(
    metadata: Dict[str, Any],
    feature_columns: Sequence[str],
    label_columns: Sequence[str],
    input_shapes: Optional[Sequence[Sequence[int]]] = None,
    output_shapes: Optional[Sequence[Sequence[int]]] = None,
    label_shapes: Optional[Sequence[Sequence[int]]] = None,
) -> None:
    """ValueError where a column has not as many values a row as the model's input or output."""
    if label_shapes is None:
        label_shapes = output_shapes
    for what, columns, shapes in (("feature", feature_columns, input_shapes), ("label", label_columns, label_shapes)):
        if shapes is None:
            continue
        if len(shapes) != len(columns):
            raise ValueError(f"{len(columns)} {what} columns {list(columns)} for {len(shapes)} shapes of the model")
        for name, shape in zip(columns, shapes):
            size = metadata[name]["shape"]
            if size is not None and size != abs(int(numpy.prod(shape))):
                raise ValueError(
                    f"{what} column {name!r} has {size} values a row, which are not of shape {list(shape)}"
                )


def _row_facts(row: Any) -> Iterator[Tuple[str, Tuple[set, set, set]]]:
    for name, value in row.asDict().items():
        if isinstance(value, SparseVector):
            shape, size = value.size, len(value.indices)
        elif isinstance(value, (DenseVector, list)):
            shape = size = len(value)
        else:
            shape = size = 1
        yield name, ({type(value)}, {shape}, {size})


def _joined(one: Tuple[set, set, set], other: Tuple[set, set, set]) -> Tuple[set, set, set]:
    kinds, shapes, sizes = (a | b for a, b in zip(one, other))
    return kinds, {min(shapes), max(shapes)}, {min(sizes), max(sizes)}


def _get_col_info(frame: Any) -> Tuple[Dict[str, set], Dict[str, int], Dict[str, int]]:
    """Python's types, the shape, and the largest size of each column; it looks at every row."""
    found = dict(frame.rdd.flatMap(_row_facts).reduceByKey(_joined).collect())
    kinds, shapes, sizes = {}, {}, {}
    for name in frame.schema.names:
        kinds[name], of_shape, of_size = found[name]
        if len(of_shape) != 1:
            raise ValueError(f"Column {name} does not have uniform shape. shape set: {of_shape}")
        if len(of_size) > 1 and SparseVector not in kinds[name]:
            raise ValueError(f"Rows of column {name} have varying sizes, which only sparse vectors may have")
        shapes[name], sizes[name] = of_shape.pop(), max(of_size)
    return kinds, shapes, sizes


def metadata_of_columns(frame: Any) -> Dict[str, Dict[str, Any]]:
    """What a model remembers of the columns; see schema.py."""
    kinds, shapes, sizes = _get_col_info(frame)
    metadata = {}
    for field in frame.schema.fields:
        seen = kinds[field.name]
        is_sparse = SparseVector in seen and DenseVector not in seen
        is_vector = is_sparse or DenseVector in seen
        spark_type = SparseVector if is_sparse else DenseVector if is_vector else type(field.dataType)
        kept = constants.CUSTOM_SPARSE if is_sparse else constants.ARRAY if is_vector else constants.NOCHANGE
        metadata[field.name] = {
            "spark_data_type": spark_type, "is_sparse_vector_only": is_sparse, "shape": shapes[field.name],
            "intermediate_format": kept, "max_size": sizes[field.name],
        }  # fmt: skip
    return metadata


def to_petastorm_fn(columns: Sequence[str], metadata: Optional[Dict[str, Any]]) -> Callable[[Any], Any]:
    """A function of a row that makes lists of its vectors; of sparse ones: count, indices, values, zeros."""

    def convert(row: Any) -> Any:
        from pyspark import Row

        values = row.asDict()
        for name in columns:
            if not isinstance(values[name], Vector):
                continue
            kind = metadata[name]["intermediate_format"] if metadata else constants.ARRAY
            values[name] = _sparse_list(values[name], metadata[name]["max_size"]) if (
                metadata and kind == constants.CUSTOM_SPARSE) else values[name].toArray().tolist()  # fmt: skip
        return Row(**values)

    return convert


def _sparse_list(vector: Any, most: int) -> List[float]:
    count = len(vector.indices)
    return [float(count), *map(float, vector.indices), *map(float, vector.values), *([0.0] * 2 * (most - count))]


def _train_val_split(frame: Any, validation: Any) -> Tuple[Any, Optional[Any], float]:
    """Rows for training, rows for validation, and the share of the latter."""
    check_validation(validation)
    if not validation:
        return frame, None, 0.0
    if isinstance(validation, str):
        column = frame[validation]
        is_boolean = isinstance(frame.schema[validation].dataType, types.BooleanType)
        chosen, others = (column, ~column) if is_boolean else (column > 0, column == 0)
        train, rest = frame.filter(others).drop(validation), frame.filter(chosen).drop(validation)
        count = rest.count()
        return train, rest, count / (train.count() + count)
    train, rest = frame.randomSplit([1.0 - validation, validation])
    return train, rest, validation


def get_spark_df_output_schema(
    schema: Any, labels: Sequence[str], outputs: Sequence[str], metadata: Dict[str, Any]
) -> Any:
    """The schema of a frame with predictions of these labels."""
    added = []
    for label, name in zip(labels, outputs):
        kind = metadata[label]["spark_data_type"]
        added.append(types.StructField(name, VectorUDT() if kind in (DenseVector, SparseVector) else kind(), True))
    return types.StructType([*schema.fields, *added])


def metadata_of_rows(frame: Any) -> Dict[str, Dict[str, Any]]:
    """What Horovod knows of columns at which it has not looked: the types that Python's own values have in Spark."""
    metadata = {}
    for field in frame.schema.fields:
        kind: Any = type(field.dataType)
        if kind in (VectorUDT, types.ArrayType):
            kind = DenseVector
        elif issubclass(kind, types.IntegralType):
            kind = types.LongType
        elif issubclass(kind, types.FractionalType):
            kind = types.DoubleType
        metadata[field.name] = {
            "spark_data_type": kind, "is_sparse_vector_only": False, "shape": None, "max_size": None,
            "intermediate_format": constants.NOCHANGE,
        }  # fmt: skip
    return metadata


def get_dataset_properties(dataset_idx: int) -> Tuple[int, int, Dict[str, Any], float]:
    """Rows for training, rows for validation, metadata of the columns, and bytes of a row, of prepare_data()'s number."""
    prepared, metadata = _training_cache.at(dataset_idx)
    rows = prepared.validation.rows if prepared.validation is not None else 0
    return prepared.train.rows, rows, metadata, prepared.train.bytes / prepared.train.rows


def clear_training_cache() -> None:
    """Frames are written anew from now on."""
    _training_cache.clear()


def _get_spark_df_saved_file_list(path: str) -> List[str]:
    """The names of the files that Spark has written into a folder of this machine."""
    return sorted(name for name in os.listdir(path) if name.endswith(".parquet"))
