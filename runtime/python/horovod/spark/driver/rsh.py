"""Names of Horovod's module horovod.spark.driver.rsh; what they stand for is hvdrun's work here."""

from horovod.runner.common._absent import absent_function

rsh = absent_function("horovod.spark.driver.rsh.rsh")
