"""How a rank calls the function that it was sent, in jobs of horovod.run, of Spark and of Ray."""

from typing import Any, Callable, Dict, Tuple


def call(func: Callable[..., Any], args: Tuple, kwargs: Dict[str, Any]) -> Any:
    """What the function returns. RuntimeError if it ends Python with code 0, where the caller would wait for its result.

    Other exit codes stay: hvdrun reports them."""
    try:
        return func(*args, **kwargs)
    except SystemExit as error:
        if error.code:
            raise
        text = "the function called sys.exit(), which ends this rank without a result; return from it instead"
        raise RuntimeError(text).with_traceback(error.__traceback__) from None  # at the line of the caller's
