"""A name of Horovod's: hvdrun reaches other hosts itself."""

from horovod.runner.common._absent import absent_function

get_remote_command = absent_function("horovod.runner.util.remote.get_remote_command")
