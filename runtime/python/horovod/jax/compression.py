"""Compression of tensors on their way between ranks."""

from typing import Any, Tuple

import jax.numpy as jnp


class Compressor:
    """What a compression must offer: two static methods, which a compiled program can contain."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        """Returns the tensor to send and what `decompress` needs to undo it."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the received tensor in its original type."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class _Narrower(Compressor):
    narrow: Any = None
    wide: Tuple[str, ...] = ()

    @classmethod
    def compress(cls, tensor: Any) -> Tuple[Any, Any]:
        dtype = jnp.result_type(tensor)
        return (jnp.asarray(tensor, cls.narrow), dtype) if dtype.name in cls.wide else (tensor, None)

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else jnp.asarray(tensor, ctx)


class FP16Compressor(_Narrower):
    """Sends floating-point tensors as float16; others as they are."""

    narrow, wide = jnp.float16, ("float32", "float64", "bfloat16")


class BF16Compressor(_Narrower):
    """Sends float32 and float64 tensors as bfloat16, which has their range and fewer digits; others as they are."""

    narrow, wide = jnp.bfloat16, ("float32", "float64")


class Compression:
    """The compressions to choose from: `Compression.none`, `.fp16`, `.bf16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
