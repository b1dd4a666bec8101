"""Horovod's place of these names; horovod.spark.common.datamodule says what they are here."""

from horovod.spark.common.datamodule import NVTabularDataModule, PetastormDataModule

__all__ = ["NVTabularDataModule", "PetastormDataModule"]
