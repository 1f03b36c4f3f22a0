"""Task folders with skills."""

from .datamodule import SkillsBenchDataModule as SkillsBenchDataModule
