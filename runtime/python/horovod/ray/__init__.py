"""Horovod jobs on a Ray cluster: `horovod.ray.RayExecutor`.

    import ray
    from horovod.ray import RayExecutor

    ray.init("auto")
    executor = RayExecutor(RayExecutor.create_settings(), num_workers=4)
    executor.start()
    losses = executor.run(train, args=[0.1])
    executor.shutdown()

Ray reserves the places, and an actor in each starts hvdrun's agent, which calls hvdrun on the driver's machine; from then
on the job is like any other: ranks are tagged, watched and ended by hvdrun. This package must be installed in the Python of
Ray's workers. Importing it does not import Ray.
"""

from horovod.ray.elastic import ElasticRayExecutor
from horovod.ray.runner import RayExecutor
from horovod.ray.worker import BaseHorovodWorker

__all__ = ["RayExecutor", "BaseHorovodWorker", "ElasticRayExecutor"]
