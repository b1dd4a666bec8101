"""What a tensor must be to travel: its type, and memory that the library can use."""

import ctypes
import functools
from typing import Iterable, List, Optional, Sequence

import torch

from horovod.common import _lib
from horovod.torch._device import place_of, tell_about_staging

DTYPES = {
    torch.uint8: _lib.UINT8,
    torch.int8: _lib.INT8,
    torch.int16: _lib.INT16,
    torch.int32: _lib.INT32,
    torch.int64: _lib.INT64,
    torch.float16: _lib.FLOAT16,
    torch.bfloat16: _lib.BFLOAT16,
    torch.float32: _lib.FLOAT32,
    torch.float64: _lib.FLOAT64,
    torch.bool: _lib.BOOL,
}
if hasattr(torch, "uint16"):  # since torch 2.3
    DTYPES[torch.uint16] = _lib.UINT16


class _Exchange(ctypes.Structure):
    """_Exchange is DLPackExchangeAPI of DLPack's version 1, by which a framework offers its tensors to C."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("managed_to_object", ctypes.c_void_p),
        ("view", ctypes.c_void_p),
    ]


def _find_view() -> Optional[ctypes.c_void_p]:
    """Returns the function that shows a tensor to C, without a reference to it. None: this torch has none."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    try:
        offered = _Exchange.from_address(pointer_of(capsule, b"dlpack_exchange_api"))
    except (TypeError, ValueError):
        return None  # another object of this name
    return ctypes.c_void_p(offered.view) if offered.major == 1 and offered.view else None


VIEW = _find_view()


# Complex numbers travel as pairs of real ones.
_PAIRS = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
_LINEAR = (_lib.SUM, _lib.AVERAGE)  # the operators that may take the parts of a number by themselves
MOVED = -1  # stands for the operator of operations that compute nothing


def dtype_of(tensor: torch.Tensor, op: int = _lib.SUM) -> int:
    """Returns the library's number of the type in which the tensor travels. ValueError for one that the operator `op`
    cannot take."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"a torch tensor is needed, not {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"Tensors of layout {tensor.layout} are not supported here; use tensor.to_dense() or "
            "hvd.sparse_allreduce_async."
        )
    dtype = DTYPES.get(tensor.dtype)
    if dtype is not None:
        return dtype
    if tensor.dtype in _PAIRS and (op in _LINEAR or op == MOVED):
        return DTYPES[_PAIRS[tensor.dtype]]
    if op == MOVED and not tensor.is_quantized:
        return _lib.UINT8
    only = "; complex numbers have op=hvd.Sum and op=hvd.Average" if tensor.dtype in _PAIRS else ""
    raise ValueError(f"Tensor type {tensor.dtype} is not supported{only}.")


def shape_of(tensor: torch.Tensor) -> Sequence[int]:
    """Returns the shape in which the tensor travels. Where the library has no number for its type, there is one dimension
    more, of the parts of each value: two real numbers, or bytes."""
    if tensor.dtype in DTYPES:
        return tensor.shape
    return (*tensor.shape, 2 if tensor.dtype in _PAIRS else tensor.element_size())


def shape_in_rows(tensor: torch.Tensor) -> Sequence[int]:
    """Returns shape_of() for operations that cut or join tensors along the first dimension. A scalar has none, whatever its type:
    the library refuses it on all ranks alike."""
    return shape_of(tensor) if tensor.dim() else ()


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor for an operation that only moves values: a view of their bytes, in as many rows, where the library
    has no numbers of that type (complex ones, float8, uint32). `as_was` undoes it."""
    if tensor.dtype in DTYPES or tensor.layout is not torch.strided:
        return tensor
    return tensor.resolve_conj().contiguous().view(tensor.shape or (1,)).view(torch.uint8)


def as_was(result: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns what came of `as_bytes`, or of pairs of real numbers, as values of this type."""
    return result if result.dtype == dtype else result.view(dtype)


def within_reach(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the values in contiguous memory that the library can use: the tensor itself if it is there already."""
    tensor = tensor.detach()
    if not tensor.is_cpu and place_of(tensor) is None:
        tell_about_staging(tensor)
        tensor = tensor.cpu()
    return tensor.resolve_conj().resolve_neg().contiguous()


# Returns new memory of the same shape, which is contiguous whatever the tensor's own layout is.
empty_like = functools.partial(torch.empty_like, memory_format=torch.contiguous_format)


def needs_gradient(tensor: torch.Tensor) -> bool:
    """Returns whether autograd must know of an operation on the tensor. To tell it costs more than a small operation
    does."""
    return isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled()


def is_in_place(tensor: torch.Tensor) -> bool:
    """Returns whether the library can work in the tensor's own memory on the host: its values are there, in order."""
    return tensor.is_cpu and tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def check_in_place(tensor: torch.Tensor) -> None:
    """Raises ValueError unless an operation can work in the tensor's own memory."""
    if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")


def check_group(tensors: Iterable[torch.Tensor], op: int = _lib.SUM) -> List[torch.Tensor]:
    """Returns the tensors of a group, which may come from a generator, as a list. ValueError for anything else, and for what
    `op` cannot take."""
    group = [] if isinstance(tensors, torch.Tensor) or not isinstance(tensors, Iterable) else list(tensors)
    if not 0 < len(group) <= _lib.MAX_GROUP:
        raise ValueError(f"a group is a list of 1 to {_lib.MAX_GROUP} tensors")
    for tensor in group:
        dtype_of(tensor, op)
    return group


def full_name(prefix: str, name: Optional[str]) -> Optional[str]:
    """Returns the name under which an operation travels. None: it is numbered, as is one whose name is empty."""
    return prefix + name if name else None


def group_names(prefix: str, name: Optional[str], count: int) -> List[Optional[str]]:
    """Returns each tensor's name. Horovod's ends with the number of tensors, "_1of3": ranks that disagree about the
    number would wait for each other there. Here they get an error."""
    return [f"{prefix}{name}_{i + 1}" if name else None for i in range(count)]
