"""Collectives within functions that XLA compiles, tf.function(jit_compile=True)."""

from typing import Any, List, Optional, Sequence


def not_compiled(kind: str) -> NotImplementedError:
    """The error for an operation that cannot be compiled."""
    return NotImplementedError(
        f"{kind} is not available in functions that XLA compiles: use tf.function(jit_compile=False) for the function that "
        "calls it, or model.compile(jit_compile=False)"
    )


def grouped_allreduce(
    tensors: Sequence[Any], name: Optional[str], op: int, prescale: float, postscale: float, process_set: int
) -> List[Any]:
    """The reductions of tensors, all together or none, in a graph that XLA compiles."""
    raise not_compiled("hvd.allreduce")
