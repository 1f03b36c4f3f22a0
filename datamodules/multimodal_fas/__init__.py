"""Multimodal face anti-spoofing: procedural faces, the MMDG benchmark, and a user's own files."""

from .datamodule import MultimodalFASDataModule as MultimodalFASDataModule
