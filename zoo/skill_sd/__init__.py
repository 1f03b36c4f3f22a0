"""Skill-SD: an agent that teaches itself, with skills from its own trajectories in the prompt."""

from zoo.skill_sd.bandit import SkillBandit
from zoo.skill_sd.loss import distillation
from zoo.skill_sd.module import SkillSD
from zoo.skill_sd.summary import SkillSummarizer

__all__ = ["SkillBandit", "SkillSD", "SkillSummarizer", "distillation"]
