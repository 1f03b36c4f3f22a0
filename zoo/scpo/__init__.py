"""SCPO: policy optimisation with baselines that prompts of one skill share."""

from zoo.scpo.baseline import estimate_baselines
from zoo.scpo.history import SkillHistory
from zoo.scpo.module import SCPO

__all__ = ["SCPO", "SkillHistory", "estimate_baselines"]
