"""Horovod's module of this name is not here; importing it says what has taken its place."""

raise ImportError(
    "horovod.spark.data_loaders.pytorch_data_loaders is not in hvdrun: its loaders are of petastorm, which needs a pyarrow of before "
    "2023. The estimators' batches come from horovod.spark.common.datamodule.ArrowDataModule (data_module= of an estimator takes a "
    "class of your own), and horovod.data.AsyncDataLoaderMixin reads any loader ahead"
)
