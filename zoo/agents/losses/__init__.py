"""Losses and baselines of policy gradients, as pure functions on tensors."""

from zoo.agents.losses.baselines import Prior as Prior
from zoo.agents.losses.baselines import SkillSums as SkillSums
from zoo.agents.losses.baselines import check_rewards as check_rewards
from zoo.agents.losses.baselines import coupled_baseline as coupled_baseline
from zoo.agents.losses.baselines import group_mean_baseline as group_mean_baseline
from zoo.agents.losses.baselines import leave_one_out_baseline as leave_one_out_baseline
from zoo.agents.losses.baselines import shrinkage_baseline as shrinkage_baseline
from zoo.agents.losses.baselines import skill_sums as skill_sums
from zoo.agents.losses.policy import Advantage as Advantage
from zoo.agents.losses.policy import aggregate as aggregate
from zoo.agents.losses.policy import aggregate_count as aggregate_count
from zoo.agents.losses.policy import clipped_surrogate as clipped_surrogate
from zoo.agents.losses.policy import entropy_bonus as entropy_bonus
from zoo.agents.losses.policy import grpo_advantage as grpo_advantage
from zoo.agents.losses.policy import iw_reverse_kl as iw_reverse_kl
from zoo.agents.losses.policy import kl_k3 as kl_k3
from zoo.agents.losses.policy import rloo_advantage as rloo_advantage
