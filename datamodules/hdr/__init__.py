"""Photographs with their radiance: panoramas with a simulated camera, and benchmarks."""

from .datamodule import HDRDataModule as HDRDataModule
