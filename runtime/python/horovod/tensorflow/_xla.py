"""Collectives within functions that XLA compiles, tf.function(jit_compile=True): calls of libhvd_xla.so's handler.

TensorFlow has a copy of XLA of its own, in which the handler is registered by a function that it exports since 2.19. A node
"XlaCallModule" with a few lines of StableHLO then calls it.
"""

import ctypes
import functools
import pathlib
import re
import struct
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import tensorflow as tf

from horovod.common import _abi, _lib
from horovod.common.basics import rank, restart_limit

_WAY_OUT = "use tf.function(jit_compile=False) for the function that calls it, or model.compile(jit_compile=False)"
_XLA_TYPES = {
    tf.bool: "i1", tf.int8: "i8", tf.int16: "i16", tf.int32: "i32", tf.int64: "i64", tf.uint8: "ui8", tf.uint16: "ui16",
    tf.float16: "f16", tf.bfloat16: "bf16", tf.float32: "f32", tf.float64: "f64",
}  # fmt: skip
_ORDER_BYTES = 1  # of the operand by which a collective waits for the one before it
_READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")


def not_compiled(kind: str) -> NotImplementedError:
    """The error for an operation that cannot be compiled."""
    return NotImplementedError(f"hvd's {kind} is not available in functions that XLA compiles: {_WAY_OUT}")


@functools.lru_cache(maxsize=None)
def _register() -> None:
    """Once. NotImplementedError where this TensorFlow or this installation cannot."""
    path = pathlib.Path(_abi.lib._name).resolve().parent / "libhvd_xla.so"
    if not path.is_file():
        raise NotImplementedError(f"hvd.allreduce in functions that XLA compiles needs {path}, which is not there; {_WAY_OUT}")
    try:
        # The flag is RTLD_NOLOAD: if TensorFlow has not loaded this library, it is not the one that TensorFlow uses.
        compiler = ctypes.CDLL("libtensorflow_cc.so.2", mode=0x4 | ctypes.RTLD_LOCAL)
        get_api = compiler._ZN3xla3ffi12GetXlaFfiApiEv
    except (OSError, AttributeError):
        raise NotImplementedError(
            f"hvd.allreduce in functions that XLA compiles needs TensorFlow 2.19 or later, and this is {tf.__version__}; {_WAY_OUT}"
        ) from None
    get_api.restype = ctypes.c_void_p
    register = ctypes.CDLL(str(path)).hvd_xla_register
    register.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64]
    text = ctypes.create_string_buffer(1000)
    if register(get_api(), text, len(text)):
        raise NotImplementedError(f"TensorFlow's XLA has refused libhvd's handler: {text.value.decode()}; {_WAY_OUT}")


def why_not_compiled() -> str:
    """Why functions with our operations cannot be compiled here; "" where they can. It starts no device."""
    if tf.config.get_visible_devices("GPU"):
        return "hvd's operations cannot be compiled for GPUs yet"
    try:
        _register()
    except NotImplementedError as error:
        return str(error).removesuffix(f"; {_WAY_OUT}")
    return ""


def _type_of(tensor: Any) -> str:
    if tensor.dtype not in _XLA_TYPES:
        raise ValueError(f"hvd cannot reduce tensors of {tensor.dtype.name}")
    if not tensor.shape.is_fully_defined():
        raise ValueError(
            f"hvd in a function that XLA compiles needs tensors whose shapes are known when it is traced, and one has {tensor.shape}; "
            + _WAY_OUT
        )
    return "tensor<" + "".join(f"{extent}x" for extent in tensor.shape) + _XLA_TYPES[tensor.dtype] + ">"


class _Order:
    """The collectives of one graph; each waits for the one of its process set before it.

    XLA orders the steps of a program by itself, so that a rank which traces collectives in another order than the others
    would wait for them for ever. This order is the same on all ranks, whatever the order of tracing: where no operation's
    result leads to another operation, their names decide. A last operand and result of each collective, which nobody
    reads, hold XLA to it. Thread: that which traces the graph.
    """

    def __init__(self) -> None:
        self.begin = tf.zeros([_ORDER_BYTES], tf.uint8)  # what the first ones wait for
        self._rows: Dict[int, List[Tuple[str, Any]]] = {}  # names and operations by process set
        self._all: Set[Any] = set()
        self._before_all: Set[Any] = set()  # operations that come after none of the collectives

    def insert(self, process_set: int, name: str, operation: Any) -> None:
        """Gives a new collective its place: after those that lead to it, and before the next greater name."""
        row = self._rows.setdefault(process_set, [])
        ancestors = self._ancestors(operation, {each for _, each in row})
        place = max((i + 1 for i, (_, each) in enumerate(row) if each in ancestors), default=0)
        while place < len(row) and row[place][0] < name:
            place += 1
        if place > 0:
            _wait_for(operation, row[place - 1][1])
        if place < len(row):
            _wait_for(row[place][1], operation)
        row.insert(place, (name, operation))
        self._all.add(operation)

    def _ancestors(self, collective: Any, row: Set[Any]) -> Set[Any]:
        """Those of a row that must end before a collective begins, at least the last of them."""
        found: Set[Any] = set()
        seen: Set[Any] = set()
        left = _earlier(collective)
        while left:
            operation = left.pop()
            if operation in seen or operation in self._before_all:
                continue
            seen.add(operation)
            if operation in row:
                found.add(operation)
            else:
                left += _earlier(operation)
        if not seen & self._all:
            self._before_all |= seen
        return found


def _wait_for(operation: Any, other: Any) -> None:
    operation._update_input(len(operation.inputs) - 1, other.outputs[-1])


def _earlier(operation: Any) -> List[Any]:
    return [tensor.op for tensor in operation.inputs] + list(operation.control_inputs) + _earlier_uses(operation)


def _earlier_uses(operation: Any) -> List[Any]:
    """The operations on an operation's variables that TensorFlow will put before it, at the end of tracing."""
    earlier = []
    for tensor in operation.inputs:
        if tensor.dtype == tf.resource:
            for other in tensor.consumers():
                if other._id < operation._id and not (operation.type in _READS and other.type in _READS):
                    earlier.append(other)
    return earlier


def _order_of(graph: Any) -> _Order:
    if not hasattr(graph, "_hvd_order"):
        graph._hvd_order = _Order()
    return graph._hvd_order


def _module(types: Sequence[str], names: Sequence[str], kind: int, op: int, root: int, prescale: float, postscale: float, number: int) -> str:
    """The text of a program that is one call of the handler. `types`: of the operands, which are the results' too."""

    def double(value: float) -> str:
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X} : f64"

    count = len(types)
    arguments = ", ".join(f"%arg{i}" for i in range(count))
    several = f":{count}" if count > 1 else ""
    results = ", ".join(f"%0#{i}" for i in range(count)) if count > 1 else "%0"
    all_types = ", ".join(types)
    lines = "\\0A".join(names)  # a line break, as such texts have it
    config = (
        f'kind = {kind} : i64, names = "{lines}", op = {op} : i64, ordered = 1 : i64, postscale = {double(postscale)}, '
        f"prescale = {double(prescale)}, process_set = {number} : i64, root_rank = {root} : i64"
    )
    return (
        "module @hvd {\n  func.func public @main("
        + ", ".join(f"%arg{i}: {kind_of}" for i, kind_of in enumerate(types))
        + f") -> ({all_types}) {{\n"
        + f"    %0{several} = stablehlo.custom_call @hvd_xla_collective({arguments}) "
        + f"{{api_version = 4 : i32, has_side_effect = true, backend_config = {{{config}}}}} : ({all_types}) -> "
        + (f"({all_types})" if count > 1 else all_types)
        + f"\n    return {results} : {all_types}\n  }}\n}}\n"
    )


def _call(tensors: Sequence[Any], label: str, kind: int, op: int, root: int, prescale: float, postscale: float, number: int) -> List[Any]:
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    if tf.config.list_logical_devices("GPU"):
        raise NotImplementedError(f"hvd.allreduce in functions that XLA compiles for GPUs is not available yet: {_WAY_OUT}")
    _register()
    graph = tf.compat.v1.get_default_graph()
    base = graph.unique_name(re.sub(r"[^a-zA-Z0-9_./]", "_", label))
    names = [base] if len(tensors) == 1 else [f"{base}_{i}" for i in range(len(tensors))]
    order = _order_of(graph)
    operands = [*tensors, order.begin]
    module = _module([_type_of(tensor) for tensor in operands], names, kind, op, root, prescale, postscale, number)
    results = gen_xla_ops.xla_call_module(
        operands, version=5, module=module, Sout=[tensor.shape for tensor in operands],
        Tout=[tensor.dtype for tensor in operands], platforms=["CPU"], dim_args_spec=[], function_list=[],
        has_token_input_output=False, disabled_checks=[],
    )  # fmt: skip
    order.insert(number, base, results[-1].op)
    _run_independently(graph, results[-1].op)
    return list(results[:-1])


def _run_independently(graph: Any, operation: Any) -> None:
    """Says that the operation has to run, used or not. Otherwise TensorFlow would put all that have effects into the order of
    tracing, against ours."""
    manager = getattr(graph, "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(operation)


def grouped_allreduce(
    tensors: Sequence[Any], name: Optional[str], op: int, prescale: float, postscale: float, process_set: int
) -> List[Any]:
    """The reductions of tensors, all together or none, in a graph that XLA compiles. The gradient is reduced alike."""
    label = name or "HorovodAllreduce"

    @tf.custom_gradient
    def reduce(*values: Any) -> Any:
        def gradient(*upstream: Any) -> List[Any]:
            upstream = [tf.convert_to_tensor(each) for each in upstream]  # that of tf.gather is IndexedSlices
            return grouped_allreduce(upstream, label + "_grad", op, prescale, postscale, process_set)

        return tuple(_call(values, label, _lib.ALLREDUCE, op, 0, prescale, postscale, process_set)), gradient

    return list(reduce(*tensors))


def broadcast(tensor: Any, root_rank: int, name: Optional[str], process_set: int) -> Any:
    """The root's tensor, in a graph that XLA compiles. The gradient is the averaged one on the root, zeros elsewhere."""
    label = name or "HorovodBroadcast"

    @tf.custom_gradient
    def broadcast_one(value: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            if restart_limit():  # the program would take this rank for the one that it was when it was compiled
                raise not_compiled("gradient of broadcast in an elastic job")
            dense = tf.convert_to_tensor(upstream)
            (average,) = grouped_allreduce([dense], label + "_grad", _lib.AVERAGE, 1.0, 1.0, process_set)
            return average if rank() == root_rank else tf.zeros_like(average)

        return _call([value], label, _lib.BROADCAST, _lib.SUM, root_rank, 1.0, 1.0, process_set)[0], gradient

    return broadcast_one(tensor)
