"""Photographs with their true radiance: panoramas with a simulated camera, and public benchmarks."""

from .datamodule import HDRDataModule as HDRDataModule
