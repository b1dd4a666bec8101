"""For functions that HorovodRunner runs: messages for the driver."""

import warnings

__all__ = ["log_to_driver"]

_LONGEST = 4000  # characters of a message; more is cut


def log_to_driver(message: str) -> None:
    """Shows a message in the driver's standard output, also where the ranks' output is not shown.

    Outside of HorovodRunner, and with np below 0, it is printed here. It never fails a rank: a message that cannot be sent
    is a warning.
    """
    text = str(message)
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "...(truncated)"
    from horovod.runner import _exchange

    try:
        sent = _exchange.log(text)
    except OSError as error:
        warnings.warn(f"log_to_driver: the message was not sent: {error}", stacklevel=2)
        return
    if not sent:
        print(text, flush=True)
