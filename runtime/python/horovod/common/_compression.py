"""Compression of tensors on their way between ranks, but for what each framework does in its own way."""

from typing import Any, Callable, Tuple


class Compressor:
    """Compressor is what a compression must offer: two static methods, which a compiled program can contain."""

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


class Narrower(Compressor):
    """Narrower sends tensors of wide types as a narrow one, and others as they are. What is missing here, a front adds."""

    narrow: Any
    is_wide: Callable[[Any], bool]
    cast: Callable[[Any, Any], Any]  # of a tensor to a type

    @staticmethod
    def type_of(tensor: Any) -> Any:
        return tensor.dtype

    @classmethod
    def compress(cls, tensor: Any) -> Tuple[Any, Any]:
        dtype = cls.type_of(tensor)
        return (cls.cast(tensor, cls.narrow), dtype) if cls.is_wide(dtype) else (tensor, None)

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else cls.cast(tensor, ctx)
