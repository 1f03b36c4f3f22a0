"""Tuples of degrader, target and E3 ligase."""

from .datamodule import ProtacTuplesDataModule

__all__ = ["ProtacTuplesDataModule"]
