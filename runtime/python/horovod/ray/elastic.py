"""Names of Horovod's older elastic interface; RayExecutor(min_workers=...) is what there is."""

from horovod.runner.common._absent import absent_class

ElasticRayExecutor = absent_class("horovod.ray.elastic.ElasticRayExecutor")
RayHostDiscovery = absent_class("horovod.ray.elastic.RayHostDiscovery")
