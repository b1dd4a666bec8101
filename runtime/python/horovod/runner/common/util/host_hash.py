"""Names of Horovod's module horovod.runner.common.util.host_hash; hvdrun knows which ranks share a host."""

from horovod.runner.common._absent import absent_function

host_hash = absent_function("horovod.runner.common.util.host_hash.host_hash")
_hash = absent_function("horovod.runner.common.util.host_hash._hash")
