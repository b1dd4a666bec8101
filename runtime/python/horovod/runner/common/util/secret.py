"""Keys by which processes that belong together recognise one another. Digests of messages are made elsewhere
(hvd_mac)."""

import secrets

from horovod.runner.common._absent import absent_function

_KEY_BYTES = 32

compute_digest = absent_function("horovod.runner.common.util.secret.compute_digest")
check_digest = absent_function("horovod.runner.common.util.secret.check_digest")
HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"


def make_secret_key() -> bytes:
    """Returns a new key that nobody can guess."""
    return secrets.token_bytes(_KEY_BYTES)
