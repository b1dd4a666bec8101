"""Names of Horovod's module horovod.ray.adapter; RayExecutor does this work here."""

from horovod.runner.common._absent import absent_class

Adapter = absent_class("horovod.ray.adapter.Adapter")
BaseParams = absent_class("horovod.ray.adapter.BaseParams")
