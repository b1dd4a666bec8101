"""Names of Horovod's module horovod.runner.common.util.codec; what they stand for is hvdrun's work here."""

from horovod.runner.common._absent import absent_function

dumps_base64 = absent_function("horovod.runner.common.util.codec.dumps_base64")
loads_base64 = absent_function("horovod.runner.common.util.codec.loads_base64")
