"""A name of Horovod's: there is no such worker here, since ranks are processes of hvdrun and no actors."""

from horovod.runner.common._absent import absent_class

BaseHorovodWorker = absent_class("horovod.ray.worker.BaseHorovodWorker")
