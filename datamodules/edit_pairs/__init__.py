"""Pairs of pictures before and after an edit: embedded ones, and data sets as published."""

from .datamodule import EditPairsDataModule as EditPairsDataModule
