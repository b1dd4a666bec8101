"""Names of Horovod's module horovod.spark.task.task_service; what they stand for is hvdrun's work here."""

from horovod.runner.common._absent import absent_class

SparkTaskService = absent_class("horovod.spark.task.task_service.SparkTaskService")
SparkTaskClient = absent_class("horovod.spark.task.task_service.SparkTaskClient")
