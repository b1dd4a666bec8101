"""A name of Horovod's: RayExecutor finds the networks of its hosts through hvdrun."""

from horovod.runner.common._absent import absent_function

_driver_fn = absent_function("horovod.ray.driver_service._driver_fn")
