"""Names of Horovod's module horovod.ray.utils, which Ray's own HorovodTrainer imports; RayExecutor does this work here."""

from horovod.runner.common._absent import absent_function

detect_nics = absent_function("horovod.ray.utils.detect_nics")
map_blocking = absent_function("horovod.ray.utils.map_blocking")
nics_to_env_var = absent_function("horovod.ray.utils.nics_to_env_var")
