"""CUDA tensors where torch has no CUDA: `install` makes torch take device "cuda:0", and gives what lies there the looks of
a CUDA tensor and memory of the fake driver (tests/support/fake_cuda), which libhvd then finds as libcuda.so.1.

Torch itself computes on that memory on the host, after what is on the stream by then; libhvd sees a device with streams.
"""

import contextlib
import ctypes
import pathlib

import torch
from torch.overrides import TorchFunctionMode

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "build/lib/fake/libcuda.so.1"
NCCL = ROOT / "build/lib/fake/libnccl.so.2"
DEVICE = torch.device("cuda", 0)

_driver = None
_nccl = None
_stream = 0
_own_waits = 0
recorded = []  # what record_stream was called with: where the tensor is, and the stream
_blocks = set()  # where each block of the fake's memory begins that tensors use; kept to the end


def count(what):
    """fake_cuda_count or fake_nccl_count."""
    if what.startswith("nccl"):
        return _nccl.fake_nccl_count(what.encode())
    return _driver.fake_cuda_count(what.encode())


def host_waits():
    """How often somebody but this file has blocked the host until the device was done."""
    return sum(map(count, ("cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"))) - _own_waits


def _check(code):
    assert code == 0, f"the fake driver has returned {code}"


class Stream:
    """torch.cuda.Stream and ExternalStream; 0 is the default stream."""

    def __init__(self, cuda_stream, device=None):
        self.cuda_stream = cuda_stream

    def wait_stream(self, other):
        event = ctypes.c_void_p()
        _check(_driver.cuEventCreate(ctypes.byref(event), 2))
        _check(_driver.cuEventRecord(event, ctypes.c_void_p(other.cuda_stream)))
        _check(_driver.cuStreamWaitEvent(ctypes.c_void_p(self.cuda_stream), event, 0))
        _check(_driver.cuEventDestroy_v2(event))


def external_stream(cuda_stream, device=None):
    assert cuda_stream, "torch makes a new stream of this"
    return Stream(cuda_stream)


def new_stream():
    stream = ctypes.c_void_p()
    _check(_driver.cuStreamCreateWithPriority(ctypes.byref(stream), 1, 0))
    return Stream(stream.value)


@contextlib.contextmanager
def on(stream):
    """torch.cuda.stream."""
    global _stream
    before, _stream = _stream, stream.cuda_stream
    try:
        yield
    finally:
        _stream = before


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


def _wait_for_stream():
    """As what torch puts on the stream would."""
    global _own_waits
    if _driver is not None:
        _own_waits += 1
        _check(_driver.cuStreamSynchronize(ctypes.c_void_p(_stream)))


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
        _wait_for_stream()
        result = super().__torch_function__(function, kinds, arguments, options or {})
        if isinstance(result, (tuple, list)) and any(isinstance(part, CudaTensor) for part in result):
            return type(result)(_on_device(part) if isinstance(part, CudaTensor) else part for part in result)
        return _on_device(result) if type(result) is CudaTensor else result

    def record_stream(self, stream):
        recorded.append((self.data_ptr(), stream.cuda_stream))

    def cpu(self):
        _wait_for_stream()
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


def install(with_driver=True, with_nccl=False):
    """From now on. Without the driver the memory is the host's, and nobody but torch may look at it. `with_nccl`: libhvd
    finds the fake NCCL loaded already, as it finds torch's."""
    global _driver, _nccl, _stream
    if with_nccl:
        _nccl = ctypes.CDLL(str(NCCL))
        _nccl.fake_nccl_count.restype = ctypes.c_int64
    if with_driver:
        _driver, _stream = _open_driver()
    _Mode().__enter__()
    torch.cuda.current_stream = lambda device=None: Stream(_stream)
    torch.cuda.default_stream = lambda device=None: Stream(0)
    torch.cuda.ExternalStream = external_stream


def cuda(tensor):
    """A copy of a host tensor."""
    return _on_device(tensor.detach().clone())


def joined(way):
    """Joins the job. Returns what puts a host tensor on this rank's GPU: a real one ("gpu"), or what stands for it with NCCL."""
    import horovod.torch as hvd

    if way == "gpu":
        hvd.init()
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
        return torch.Tensor.cuda
    install(with_nccl=True)
    hvd.init()
    return cuda
