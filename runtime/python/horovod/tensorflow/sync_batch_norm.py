"""SyncBatchNormalization: batch normalization with the statistics of all ranks' batches."""

from typing import Any

import tensorflow as tf

from horovod.common.process_sets import global_process_set
from horovod.tensorflow._reduce import allreduce
from horovod.tensorflow.mpi_ops import Sum


def _across_ranks(mean: Any, variance: Any, count: Any, process_set: Any) -> Any:
    """Mean and variance over all ranks, whose batches may have different sizes."""
    kind = mean.dtype
    wide = tf.float32 if kind in (tf.float16, tf.bfloat16) else kind  # squares of 16 bits overflow
    mean, variance, count = tf.cast(mean, wide), tf.cast(variance, wide), tf.cast(count, wide)
    shape = tf.shape(mean)
    sums = tf.concat(
        [tf.reshape(mean * count, [-1]), tf.reshape((variance + tf.square(mean)) * count, [-1]), tf.reshape(count, [1])],
        0,
    )
    sums = allreduce(sums, op=Sum, process_set=process_set)
    total = sums[-1]
    size = (tf.size(sums) - 1) // 2
    total_mean = tf.math.divide_no_nan(sums[:size], total)
    total_variance = tf.maximum(tf.math.divide_no_nan(sums[size:-1], total) - tf.square(total_mean), 0)
    return tf.cast(tf.reshape(total_mean, shape), kind), tf.cast(tf.reshape(total_variance, shape), kind)


def _is_keras_3() -> bool:
    return tf.keras.Model.__module__.partition(".")[0] == "keras"


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """tf.keras.layers.BatchNormalization that normalizes by mean and variance over the batches of all ranks.

    Takes the arguments of BatchNormalization, and `process_set`.

    Raises:
        ValueError: fused=True, or renorm=True of legacy Keras.
    """

    def __init__(self, fused: bool = False, process_set: Any = global_process_set, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        if kwargs.get("renorm"):
            raise ValueError("SyncBatchNormalization does not support renorm=True.")
        if not _is_keras_3():
            kwargs["fused"] = False
        super().__init__(**kwargs)
        self._process_set = process_set

    def _moments(self, inputs: Any, *arguments: Any, **options: Any) -> Any:
        """Both of Keras' methods of this name: (inputs, mask) in Keras 3, (inputs, reduction_axes, keep_dims) before."""
        mean, variance = super()._moments(inputs, *arguments, **options)
        mask = (arguments[0] if arguments else options.get("mask")) if _is_keras_3() else options.get("mask")
        if mask is not None and not isinstance(mask, (list, tuple)):
            count = tf.reduce_sum(tf.cast(mask, tf.float32))
        else:
            values, channels = tf.size(inputs), tf.size(mean)
            count = tf.cast(values // channels, tf.float32)
        # A batch without rows has no mean, and contributes nothing.
        is_empty = tf.equal(count, 0)
        mean, variance = tf.convert_to_tensor(mean), tf.convert_to_tensor(variance)
        mean, variance = (tf.where(is_empty, tf.zeros_like(value), value) for value in (mean, variance))
        return _across_ranks(mean, variance, count, self._process_set)
