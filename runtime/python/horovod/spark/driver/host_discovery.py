"""Names of Horovod's module horovod.spark.driver.host_discovery; what they stand for is hvdrun's work here."""

from horovod.runner.common._absent import absent_class

SparkDriverHostDiscovery = absent_class("horovod.spark.driver.host_discovery.SparkDriverHostDiscovery")
