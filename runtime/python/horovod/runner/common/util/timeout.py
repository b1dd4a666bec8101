"""The exception of a wait whose time is over."""

from horovod.runner.common._absent import absent_class

Timeout = absent_class("horovod.runner.common.util.timeout.Timeout")


class TimeoutException(Exception):
    """The thing that was waited for did not come in time."""
