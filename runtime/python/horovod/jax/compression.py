"""Compression of tensors on their way between ranks."""

from typing import Any

import jax.numpy as jnp

from horovod.common._compression import Compressor as Compressor
from horovod.common._compression import Narrower, NoneCompressor


class _Narrower(Narrower):
    @staticmethod
    def type_of(tensor: Any) -> Any:
        return jnp.result_type(tensor)

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return jnp.asarray(tensor, dtype)


class FP16Compressor(_Narrower):
    """Sends floating-point tensors as float16; others as they are."""

    narrow = jnp.float16
    is_wide = staticmethod(lambda dtype: dtype.name in ("float32", "float64", "bfloat16"))


class BF16Compressor(_Narrower):
    """Sends float32 and float64 tensors as bfloat16, which has their range and fewer digits; others as they are."""

    narrow = jnp.bfloat16
    is_wide = staticmethod(lambda dtype: dtype.name in ("float32", "float64"))


class Compression:
    """The compressions to choose from: `Compression.none`, `.fp16`, `.bf16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
