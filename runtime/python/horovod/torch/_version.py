"""Which versions of torch this package works with."""

import torch


def demand(*version: int, for_what: str, otherwise: str = "") -> None:
    """Raises ImportError if torch is older than this version. `otherwise`: what works with an older one."""
    if tuple(int(part) for part in torch.__version__.split(".")[: len(version)]) < version:
        raise ImportError(
            f"{for_what} needs PyTorch {'.'.join(map(str, version))} or later; this is {torch.__version__}{otherwise}"
        )
