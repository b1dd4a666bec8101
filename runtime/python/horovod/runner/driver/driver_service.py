"""Names of Horovod's service that finds the networks that hosts have in common. Here the ranks' own connections do."""

from horovod.runner.common._absent import absent_class, absent_function

HorovodRunDriverService = absent_class("horovod.runner.driver.driver_service.HorovodRunDriverService")
HorovodRunDriverClient = absent_class("horovod.runner.driver.driver_service.HorovodRunDriverClient")
get_common_interfaces = absent_function("horovod.runner.driver.driver_service.get_common_interfaces")
get_local_interfaces = absent_function("horovod.runner.driver.driver_service.get_local_interfaces")
