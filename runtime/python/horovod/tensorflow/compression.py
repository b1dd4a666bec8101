"""Compression of tensors on their way between ranks."""

from typing import Any

import tensorflow as tf

from horovod.common._compression import Compressor as Compressor
from horovod.common._compression import Narrower, NoneCompressor


class _Narrower(Narrower):
    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tf.cast(tensor, dtype)


class FP16Compressor(_Narrower):
    """Sends floating-point tensors as float16; others as they are."""

    narrow = tf.float16
    is_wide = staticmethod(lambda dtype: dtype.is_floating and dtype != tf.float16)


class BF16Compressor(_Narrower):
    """Sends float32 and float64 tensors as bfloat16, which has their range and fewer digits; others as they are."""

    narrow = tf.bfloat16
    is_wide = staticmethod(lambda dtype: dtype in (tf.float32, tf.float64))


class Compression:
    """The compressions to choose from: `Compression.none`, `.fp16`, `.bf16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
