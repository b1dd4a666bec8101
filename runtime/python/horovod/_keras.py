"""Horovod's private package of this name is not here; importing it says what has taken its place."""

raise ImportError(
    "horovod._keras is private to Horovod, and not in hvdrun: DistributedOptimizer and load_model are in horovod.tensorflow.keras and "
    "horovod.keras, callbacks to derive from in their module callbacks, states in their module elastic"
)
