"""Numbers that users give where a whole one is needed."""

import operator
from typing import Any, Optional


def whole_number(value: Any) -> Optional[int]:
    """Returns the whole number that it is: an int, one of numpy's, or a float such as the 4.0 that Ray counts GPUs in. None: it
    is none, or a truth value."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        return None
