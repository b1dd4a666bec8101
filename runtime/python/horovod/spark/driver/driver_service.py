"""Names of Horovod's module horovod.spark.driver.driver_service; what they stand for is hvdrun's work here."""

from horovod.runner.common._absent import absent_class

SparkDriverService = absent_class("horovod.spark.driver.driver_service.SparkDriverService")
SparkDriverClient = absent_class("horovod.spark.driver.driver_service.SparkDriverClient")
