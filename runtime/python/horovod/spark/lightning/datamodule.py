"""Horovod's place of these names; horovod.spark.common.datamodule says what they are here."""

from horovod.spark.common.datamodule import PetastormDataModule

__all__ = ["PetastormDataModule"]
