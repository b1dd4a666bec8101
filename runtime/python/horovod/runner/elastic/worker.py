"""Names of Horovod's module horovod.runner.elastic.worker. Ranks hear of changes from their agent (horovod.common.elastic)."""

from horovod.common.elastic import HostUpdateResult as HostUpdateResult
from horovod.runner.common._absent import absent_class

WorkerNotificationManager = absent_class("horovod.runner.elastic.worker.WorkerNotificationManager")
