"""HorovodRunner under the name of its module in sparkdl."""

from sparkdl._horovod_runner import HorovodRunner

__all__ = ["HorovodRunner"]
