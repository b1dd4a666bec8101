"""Names of Horovod's module horovod.runner.common.util.settings; what they stand for is hvdrun's work here."""

from horovod.runner.common._absent import absent_class

BaseSettings = absent_class("horovod.runner.common.util.settings.BaseSettings")
Settings = absent_class("horovod.runner.common.util.settings.Settings")
