"""Instances of fair covering."""

from .datamodule import CoverInstancesDataModule as CoverInstancesDataModule
