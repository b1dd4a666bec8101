"""Training that goes on after a failed collective, for the Keras that tf.keras is."""

from horovod.tensorflow._which_keras import IS_LEGACY
from horovod.tensorflow.elastic import check, run

if IS_LEGACY:
    from horovod.tensorflow.keras._legacy_callbacks import (
        CommitStateCallback,
        KerasState,
        UpdateBatchStateCallback,
        UpdateEpochStateCallback,
    )
else:
    from horovod._keras3.elastic import (
        CommitStateCallback,
        KerasState,
        UpdateBatchStateCallback,
        UpdateEpochStateCallback,
    )

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "check", "run"]
