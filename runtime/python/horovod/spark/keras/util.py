"""Horovod's module of this name is not here; importing it says what has taken its place."""

raise ImportError(
    "horovod.spark.keras.util is not in hvdrun: KerasEstimator reads data with pyarrow and keeps models as Keras does. In a function "
    "of your own use keras and horovod.keras directly (TFKerasUtil.keras(), get_horovod()), keras.saving for models, and "
    "horovod.spark.common.datamodule.ArrowDataModule, which gives an estimator's batches"
)
