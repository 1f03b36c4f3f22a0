"""Questions with answers that a program checks."""

from .datamodule import VerifiableReasoningDataModule as VerifiableReasoningDataModule
