"""Focal stacks: thin-lens pictures of scenes with depth, phones' stacks, and defocus benchmarks."""

from .datamodule import FocalStackDataModule as FocalStackDataModule
