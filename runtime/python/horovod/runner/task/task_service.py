"""Names of Horovod's service on each host. Here hvdrun's agent does this work."""

from horovod.runner.common._absent import absent_class

HorovodRunTaskService = absent_class("horovod.runner.task.task_service.HorovodRunTaskService")
HorovodRunTaskClient = absent_class("horovod.runner.task.task_service.HorovodRunTaskClient")
