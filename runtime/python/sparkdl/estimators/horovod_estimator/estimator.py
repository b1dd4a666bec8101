"""HorovodEstimator by name: it trained `tf.estimator` models, which TensorFlow dropped with 2.16, so it cannot run on anything
current. Its name is here to say what to write instead."""

from typing import Any

__all__ = ["HorovodEstimator"]

_INSTEAD = """\
HorovodEstimator trained tf.estimator models, and TensorFlow 2.16 and later have none. Use
horovod.spark.keras.KerasEstimator or horovod.spark.torch.TorchEstimator; what becomes what:
  modelFn, modelFnParams   model=, optimizer=, loss=
  featureMapping           feature_cols= (a list of columns)
  labelCol                 label_cols= (a list)
  batchSize                batch_size=
  maxSteps                 epochs=, and train_steps_per_epoch=
  isValidationCol          validation= (the column's name, or a fraction)
  modelDir                 store= (horovod.spark.common.store.Store.create(path)), run_id=
  saveCheckpointsSecs      a checkpoint is saved in the store after each epoch
  the returned TFTransformer   the returned model's transform(df)"""


class HorovodEstimator:
    """Refused, with a table of what becomes what."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise NotImplementedError(_INSTEAD)
