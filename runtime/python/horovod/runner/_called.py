"""How a rank calls the function that it was sent, in jobs of horovod.run, of Spark and of Ray."""

import os
import sys
from typing import Any, Callable, Dict, Tuple


def call(func: Callable[..., Any], args: Tuple, kwargs: Dict[str, Any]) -> Any:
    """What the function returns. RuntimeError if it ends Python with code 0, where the caller would wait for its result.

    Other exit codes stay: hvdrun reports them. A rank that leaves an elastic job ends, and nobody waits for its result."""
    try:
        return func(*args, **kwargs)
    except SystemExit as error:
        if error.code or getattr(error, "has_left_job", False):  # of horovod.common.elastic, which is not imported here
            raise
        text = "the function called sys.exit(), which ends this rank without a result; return from it instead"
        raise RuntimeError(text).with_traceback(error.__traceback__) from None  # at the line of the caller's


def present_rank() -> int:
    """Returns this process's rank. In an elastic job it may have become another than the one that it was started as."""
    basics = sys.modules.get("horovod.common.basics")
    return basics.rank() if basics is not None and basics.is_initialized() else int(os.environ.get("HVD_RANK", "0"))
