"""CUDA tensors where torch has no CUDA: `install` makes torch take device "cuda:0", and gives what lies there the looks of
a CUDA tensor and memory of the fake driver (tests/support/fake_cuda), which libhvd then finds as libcuda.so.1.

Torch itself computes on that memory on the host, at once; libhvd sees a device with streams.
"""

import ctypes
import os
import pathlib
import types

import torch
from torch.overrides import TorchFunctionMode

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path(os.environ.get("HVD_FAKE_CUDA", ROOT / "build/lib/fake/libcuda.so.1"))
DEVICE = torch.device("cuda", 0)

_driver = None
_blocks = set()  # where each block of the fake's memory begins that tensors use; kept to the end


def count(what):
    """fake_cuda_count."""
    return _driver.fake_cuda_count(what.encode())


def is_there():
    return LIBRARY.is_file()


def _check(code):
    assert code == 0, f"the fake driver has returned {code}"


def _open_driver():
    """The driver with its context current in this thread, as torch has it; and a stream."""
    driver = ctypes.CDLL(str(LIBRARY))
    driver.fake_cuda_count.restype = ctypes.c_int64
    _check(driver.cuInit(0))
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    _check(driver.cuCtxSetCurrent(context))
    _check(driver.cuStreamCreateWithPriority(ctypes.byref(stream), 1, 0))
    return driver, stream.value


def _is_on_device(plain):
    """Whether it needs no other memory."""
    return (_driver is None or plain.layout is not torch.strided or plain.nbytes == 0
            or plain.untyped_storage().data_ptr() in _blocks)  # fmt: skip


def _on_device(tensor):
    """The values in the fake's memory, as a CUDA tensor; the tensor itself where it is that."""
    plain = tensor.as_subclass(torch.Tensor)
    if _is_on_device(plain):
        return tensor if type(tensor) is CudaTensor else plain.as_subclass(CudaTensor)
    address = ctypes.c_uint64()
    _check(_driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(plain.nbytes)))
    memory = (ctypes.c_uint8 * plain.nbytes).from_address(address.value)
    _blocks.add(address.value)
    moved = torch.frombuffer(memory, dtype=torch.uint8)[: plain.nbytes].view(plain.dtype).view(plain.shape)
    moved.copy_(plain.detach())
    return moved.as_subclass(CudaTensor)


class CudaTensor(torch.Tensor):
    is_cpu = property(lambda self: False)
    is_cuda = property(lambda self: True)
    device = property(lambda self: DEVICE)

    @classmethod
    def __torch_function__(cls, function, kinds, arguments=(), options=None):
        result = super().__torch_function__(function, kinds, arguments, options or {})
        if isinstance(result, (tuple, list)) and any(isinstance(part, CudaTensor) for part in result):
            return type(result)(_on_device(part) if isinstance(part, CudaTensor) else part for part in result)
        return _on_device(result) if type(result) is CudaTensor else result

    def cpu(self):
        return self.detach().as_subclass(torch.Tensor).clone()


class _Mode(TorchFunctionMode):
    """Functions that are asked for a device "cuda"."""

    def __torch_function__(self, function, kinds, arguments=(), options=None):
        options = dict(options or {})
        wanted = options.get("device")
        if function is torch.Tensor.to and len(arguments) > 1 and isinstance(arguments[1], (torch.device, str)):
            wanted, arguments = arguments[1], (arguments[0], *arguments[2:])
            if torch.device(wanted).type != "cuda":
                return function(arguments[0], torch.device(wanted), *arguments[1:], **options)
            return _on_device(function(arguments[0], torch.device("cpu"), *arguments[1:], **options).clone())
        if wanted is None or torch.device(wanted).type != "cuda":
            return function(*arguments, **options)
        options["device"] = "cpu"
        result = function(*arguments, **options)
        return _on_device(result)


def install(with_driver=True):
    """From now on. Without the driver the memory is the host's, and nobody but torch may look at it."""
    global _driver
    stream = 0
    if with_driver:
        _driver, stream = _open_driver()
    _Mode().__enter__()
    torch.cuda.current_stream = lambda device=None: types.SimpleNamespace(cuda_stream=stream)


def cuda(tensor):
    """A copy of a host tensor."""
    return _on_device(tensor.detach().clone())
