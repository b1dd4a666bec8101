"""Names of Horovod's module horovod.runner.common.util.secret; what they stand for is hvdrun's work here."""

from horovod.runner.common._absent import absent_function

make_secret_key = absent_function("horovod.runner.common.util.secret.make_secret_key")
compute_digest = absent_function("horovod.runner.common.util.secret.compute_digest")
check_digest = absent_function("horovod.runner.common.util.secret.check_digest")
HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"
