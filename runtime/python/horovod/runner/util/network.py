"""Names of Horovod's questions about a host's networks, which hvdrun's agents ask."""

from horovod.runner.common._absent import absent_function

filter_local_addresses = absent_function("horovod.runner.util.network.filter_local_addresses")
get_driver_ip = absent_function("horovod.runner.util.network.get_driver_ip")
get_local_host_addresses = absent_function("horovod.runner.util.network.get_local_host_addresses")
