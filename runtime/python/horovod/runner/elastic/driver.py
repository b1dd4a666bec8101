"""Names of Horovod's module horovod.runner.elastic.driver; hvdrun is the driver here.

The two numbers are for programs that set them: elastic jobs that this process starts afterwards go by them.
"""

from horovod.runner.common._absent import absent_class

# How often the hosts are looked at, and how long a job with too few ranks waits for hosts.
DISCOVER_HOSTS_FREQUENCY_SECS = 1.0
ELASTIC_TIMEOUT_SECS = 600

ElasticDriver = absent_class("horovod.runner.elastic.driver.ElasticDriver")
