"""There is no front for Apache MXNet, which has ended; importing this says so."""

raise ImportError(
    "horovod.mxnet is not in hvdrun, because the project MXNet has ended; there are horovod.torch, horovod.tensorflow, "
    "horovod.keras and horovod.jax"
)
