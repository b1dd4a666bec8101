"""Names of Horovod's module horovod.runner.common.util.timeout; what they stand for is hvdrun's work here."""

from horovod.runner.common._absent import absent_class

Timeout = absent_class("horovod.runner.common.util.timeout.Timeout")


class TimeoutException(Exception):
    """Raised by nobody here; `except TimeoutException` may stay in scripts."""
