"""Four baselines by name, for use with or without a model."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from zoo.agents.losses import (
    Prior,
    check_rewards,
    coupled_baseline,
    group_mean_baseline,
    leave_one_out_baseline,
    shrinkage_baseline,
)
from zoo.errors import ZooError, check_choice

BASELINES = ("rloo", "grpo", "global", "scpo")
PSEUDO_COUNT = 0.5  # prompts


def estimate_baselines(
    rewards: Tensor,
    skills: Tensor | None = None,
    baseline: str = "scpo",
    n_skills: int | None = None,
    prior: Prior | None = None,
    mask: Tensor | None = None,
    pseudo_count: float = PSEUDO_COUNT,
    allow_single: bool = False,
    reduce: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """What reward each rollout was to be expected to have.

    Args:
        rewards: In 0..1. Shape: (P, n), n >= 2.
        skills: Of each prompt, for "scpo": labels, shape (P,), or weights that sum to 1, shape
            (P, K).
        baseline: "scpo"; "global", James-Stein shrinkage to the batch's mean; "rloo", the mean of
            the prompt's other rollouts; "grpo", the mean of all, which is biased.
        n_skills: K; ``None`` for what ``skills`` shows.
        prior: What earlier steps say, of :meth:`zoo.scpo.SkillHistory.prior`.
        mask: Which rollouts count, where prompts have different numbers. Shape: (P, n), bool.
        pseudo_count: Prompts at the batch's mean that "scpo" gives each skill.
        allow_single: Let "scpo" take prompts with one rollout.
        reduce: Adds up over processes.

    Returns:
        Shape: (P, n); 0 where masked.

    Raises:
        ZooError: For NaN, rewards outside of 0..1, a single rollout, or no or unknown skills.

    Example:
        >>> rewards = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
        >>> estimate_baselines(rewards, baseline="rloo")
        tensor([[0., 1.],
                [1., 1.],
                [0., 0.]])
    """
    check_choice("baseline", baseline, BASELINES)
    if rewards.ndim != 2:
        raise ZooError(f"rewards have the shape {tuple(rewards.shape)}: expected (P, n).")
    check_rewards(rewards)
    if baseline == "grpo":
        return group_mean_baseline(rewards, mask)
    if baseline == "rloo":
        return leave_one_out_baseline(rewards, mask)
    if baseline == "global":
        return shrinkage_baseline(rewards, mask, reduce)
    if skills is None or len(skills) != len(rewards):
        found = "none" if skills is None else str(len(skills))
        raise ZooError(f"baseline='scpo' needs the skills of {len(rewards)} prompts: got {found}.")
    if n_skills is None:
        n_skills = skills.shape[1] if skills.ndim == 2 else int(skills.max()) + 1
    return coupled_baseline(
        rewards, skills, n_skills, prior, mask, pseudo_count, allow_single, reduce
    )
