"""Horovod's module of the elastic RayExecutor; here RayExecutor is in horovod.ray."""

from horovod.ray._nodes import RayHostDiscovery as _RayHostDiscovery
from horovod.runner.common._absent import absent_class

ElasticParams = absent_class("horovod.ray.elastic_v2.ElasticParams")
ElasticAdapter = absent_class("horovod.ray.elastic_v2.ElasticAdapter")


class RayHostDiscovery(_RayHostDiscovery):
    """As horovod.ray.elastic.RayHostDiscovery, with other names."""

    def __init__(self, use_gpu: bool = False, cpus_per_worker: float = 1, gpus_per_worker: float = 1) -> None:
        super().__init__(use_gpu, cpus_per_worker, gpus_per_worker)
        self.cpus_per_worker = cpus_per_worker
        self.gpus_per_worker = gpus_per_worker
