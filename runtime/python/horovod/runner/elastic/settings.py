"""Names of Horovod's module horovod.runner.elastic.settings; what they stand for is hvdrun's work here."""

from horovod.runner.common._absent import absent_class

ElasticSettings = absent_class("horovod.runner.elastic.settings.ElasticSettings")
