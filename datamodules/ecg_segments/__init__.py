"""ECG records cut into segments of several beats: a generator, MIT-BIH excerpts, WFDB folders."""

from .datamodule import EcgSegmentsDataModule as EcgSegmentsDataModule
