"""Baselines of REINFORCE with few rollouts a prompt: what reward is to be expected?

A baseline b_ij keeps the policy gradient unbiased as long as it does not depend on rollout ij. All
of these but the group's mean keep to that: whatever is estimated for prompt i, targets and
variances, leaves prompt i out.

The functions work on any leading dimensions, (..., P, n), with the same skills throughout, so that
simulations need no loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from zoo.errors import ZooError

WITHIN_FLOOR = 1e-3  # of the variance of a prompt's rewards: two equal rewards prove nothing
BETWEEN_FLOOR = 2e-3  # of the variance between the values of prompts
BORROWED = 16.0  # degrees of freedom that each skill's variances are given of the pooled ones


class SkillSums(NamedTuple):
    """Sums over the prompts of a batch, weighted by how much each prompt belongs to a skill.

    They add up over processes. Shape of each: (..., K).

    Attributes:
        weight: sum w.
        total: sum w m, of the prompts' mean rewards m.
        square: sum w m^2.
        within: sum w SS, of squared deviations of the rewards from their prompt's mean.
        freedom: sum w (n - 1).
        inverse: sum w / n.
    """

    weight: Tensor
    total: Tensor
    square: Tensor
    within: Tensor
    freedom: Tensor
    inverse: Tensor


class Prior(NamedTuple):
    """What earlier steps say about the skills.

    Attributes:
        total: H, decayed sum of w m. Shape: (K,).
        weight: N, decayed sum of w. Shape: (K,).
        covariance: Between the values of the skills; ``None`` estimates each skill by itself.
            Shape: (K, K).
        noise: Variance of one prompt's mean reward within its skill. Shape: (K,). It comes from
            earlier steps as well: this step's would depend on the rollout whose baseline is asked.
    """

    total: Tensor
    weight: Tensor
    covariance: Tensor | None = None
    noise: Tensor | None = None

    def cpu(self) -> Prior:
        """The same on the CPU."""
        covariance = None if self.covariance is None else self.covariance.cpu()
        noise = None if self.noise is None else self.noise.cpu()
        return Prior(self.total.cpu(), self.weight.cpu(), covariance, noise)


class _Prompts(NamedTuple):
    n: Tensor  # (..., P)
    mean: Tensor  # (..., P)
    within: Tensor  # (..., P)
    others: Tensor  # (..., P, n): mean of the prompt's other rollouts


def check_rewards(rewards: Tensor, clip: bool = False) -> Tensor:
    """Rewards that a baseline can be made of.

    Args:
        rewards: Shape: (P, n).
        clip: Cut what is outside of 0..1 off rather than refuse it.

    Raises:
        ZooError: For NaN, or a reward outside of 0..1; it names the row.
    """
    bad = rewards.isnan().any(dim=-1)
    if bool(bad.any()):
        raise ZooError(f"Row {int(bad.nonzero()[0, 0])} of the rewards has a NaN: expected 0..1.")
    outside = ((rewards < 0) | (rewards > 1)).any(dim=-1)
    if not bool(outside.any()):
        return rewards
    if clip:
        return rewards.clamp(0, 1)
    row = int(outside.nonzero()[0, 0])
    values = ", ".join(f"{x:g}" for x in rewards[row].tolist())
    raise ZooError(
        f"Row {row} of the rewards is ({values}): expected 0..1; clip_rewards=True cuts them off."
    )


def group_mean_baseline(rewards: Tensor, mask: Tensor | None = None) -> Tensor:
    """GRPO's: the mean of a prompt's rollouts, the one in question among them.

    It shrinks the gradient by (n - 1) / n. Shape: (..., P, n) to the same.
    """
    prompts = _prompts(rewards, mask)
    return prompts.mean[..., None].expand_as(rewards) * _mask(rewards, mask)


def leave_one_out_baseline(rewards: Tensor, mask: Tensor | None = None) -> Tensor:
    """RLOO's: the mean of the prompt's other rollouts. Shape: (..., P, n) to the same.

    Raises:
        ZooError: If a prompt has one rollout only; it names the row.
    """
    prompts = _prompts(rewards, mask)
    _check_rollouts(prompts.n)
    return prompts.others * _mask(rewards, mask)


def shrinkage_baseline(
    rewards: Tensor,
    mask: Tensor | None = None,
    reduce: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """James-Stein: each prompt's leave-one-out mean, shrunk to the mean of the other prompts.

    b_ij = (1 - l) m_i^-j + l mu^-i with l = v / (v + tau2) and v = s2 / (n - 1). After the
    two-level baseline of arXiv 2511.03710.

    Args:
        rewards: In 0..1. Shape: (..., P, n).
        mask: Which rollouts count; ``None`` for all. Shape: (..., P, n).
        reduce: Adds up over processes.

    Returns:
        0 where masked. Shape: (..., P, n).
    """
    skills = torch.zeros(rewards.shape[-2], dtype=torch.long, device=rewards.device)
    return coupled_baseline(rewards, skills, 1, mask=mask, pseudo_count=0.0, reduce=reduce)


def skill_sums(
    rewards: Tensor,
    skills: Tensor,
    n_skills: int,
    mask: Tensor | None = None,
    reduce: Callable[[Tensor], Tensor] | None = None,
) -> SkillSums:
    """The sums of a batch, in one exchange between processes.

    Args:
        rewards: Shape: (..., P, n).
        skills: Labels, shape (P,), or weights that sum to 1, shape (P, K).
        n_skills: K.
        mask: Which rollouts count. Shape: (..., P, n).
        reduce: Adds up over processes.
    """
    index, weight = _membership(skills, n_skills, rewards.dtype)
    return SkillSums(*_sums(_own(_prompts(rewards, mask)), index, weight, n_skills, reduce))


def coupled_baseline(
    rewards: Tensor,
    skills: Tensor,
    n_skills: int,
    prior: Prior | None = None,
    mask: Tensor | None = None,
    pseudo_count: float = 0.5,
    allow_single: bool = False,
    reduce: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Each prompt's leave-one-out mean, shrunk to what the other prompts of its skills got.

    b_ij = (1 - l_i) m_i^-j + l_i g_i. The target g_i = sum_k w_ik T_k^-i pools this step's prompts
    with the decayed sums of earlier steps, T_k^-i = (H_k + sum_{i' != i} w_i'k m_i' + c mu^-i) /
    (N_k + sum_{i' != i} w_i'k + c). With a covariance between skills it is the best linear
    prediction T' = mu + C (C + D)^-1 (T - mu), D being the sampling variances. The weight
    l_i = sum_k w_ik v_k / (v_k + tau2_k) is large where rewards of one prompt scatter more than the
    prompts of a skill differ.

    Args:
        rewards: In 0..1. Shape: (..., P, n).
        skills: Labels, shape (P,), or weights that sum to 1, shape (P, K).
        n_skills: K.
        prior: Of earlier steps; ``None`` for none.
        mask: Which rollouts count; ``None`` for all. Shape: (..., P, n).
        pseudo_count: c, prompts at the batch's mean that each skill is given.
        allow_single: Take prompts with one rollout, whose baseline is then the target alone.
        reduce: Adds up over processes.

    Returns:
        0 where masked. Shape: (..., P, n).

    Raises:
        ZooError: If a prompt has one rollout only and that is not allowed; it names the row.
    """
    prompts = _prompts(rewards, mask)
    if not allow_single:
        _check_rollouts(prompts.n)
    index, w = _membership(skills, n_skills, rewards.dtype)
    own = _own(prompts)  # (6, ..., P)
    stacked = _sums(own, index, w, n_skills, reduce)  # (6, ..., K)
    sums, everything = SkillSums(*stacked), stacked.sum(dim=-1, keepdim=True)
    # The batch without prompt i, (..., P), and its skills without it, (..., P, J).
    rest = SkillSums(*(everything - own))
    left = SkillSums(*(_at(stacked, index) - w * own[..., None]))

    nothing = torch.zeros_like(sums.total)
    h, mass = (nothing, nothing) if prior is None else (prior.total, prior.weight)
    past = h.sum(dim=-1, keepdim=True) / mass.sum(dim=-1, keepdim=True).clamp_min(1e-6)
    alone = rest.weight < 0.5  # in its batch: all it has is the past
    mu = torch.where(alone, past, rest.total / rest.weight.clamp_min(1e-6))

    # Shrinkage: variance of a prompt's mean against that between prompts of the skill.
    # Three prompts say little of a variance: each skill's is drawn to that of all skills.
    pooled_s2 = _ratio(rest.within, rest.freedom, WITHIN_FLOOR)  # (..., P)
    s2 = (left.within + BORROWED * pooled_s2[..., None]) / (left.freedom + BORROWED)
    apart, degrees = _between(left)  # (..., P, J)
    whole_apart, whole_degrees = _between(sums)  # (..., K)
    pooled_apart = _ratio(
        whole_apart.sum(dim=-1, keepdim=True) + (apart - _at(whole_apart, index)).sum(dim=-1),
        whole_degrees.sum(dim=-1, keepdim=True) + (degrees - _at(whole_degrees, index)).sum(dim=-1),
    )[..., None]
    spread = (apart + BORROWED * pooled_apart) / (degrees + BORROWED)
    tau2 = (spread - s2 * _ratio(rest.inverse, rest.weight)[..., None]).clamp_min(BETWEEN_FLOOR)
    v = s2 / (prompts.n[..., None] - 1).clamp_min(1)
    shrink = (w * v / (v + tau2)).sum(dim=-1)  # (..., P)
    unknown = alone & (mass.sum(dim=-1, keepdim=True) <= 0)  # nothing to shrink to
    shrink = shrink.masked_fill(unknown, 0).masked_fill(prompts.n < 2, 1)

    # Target.
    c = pseudo_count
    target = (_at(h, index) + left.total + c * mu[..., None]) / (
        _at(mass, index) + left.weight + c
    ).clamp_min(1e-6)
    if prior is None or prior.covariance is None:
        goal = (w * target).sum(dim=-1)
    else:
        assert prior.noise is not None
        gain = _gain(prior.covariance, prior.noise / (mass + sums.weight + c))
        goal = _coupled(gain, index, w, target, mu, h + sums.total, mass + sums.weight, c)
    baseline = prompts.others + shrink[..., None] * (goal[..., None] - prompts.others)
    return baseline * _mask(rewards, mask)


def _coupled(
    gain: Tensor,
    index: Tensor | None,
    w: Tensor,
    target: Tensor,
    mu: Tensor,
    total: Tensor,
    weight: Tensor,
    c: float,
) -> Tensor:
    """sum_k w_ik [mu + G (T^-i - mu)]_k, where T^-i differs from T in prompt i's skills only.

    Shapes: (..., K, K), (P, J), (P, J), (..., P, J), (..., P), (..., K), (..., K).
    """
    denominator = (weight + c).clamp_min(1e-6)
    shared = total / denominator, weight / denominator  # T - mu = shared[0] - mu shared[1]
    first, second = (torch.einsum("...kl,...l->...k", gain, x) for x in shared)
    full = _at(shared[0], index) - mu[..., None] * _at(shared[1], index)  # (..., P, J): T - mu
    change = target - mu[..., None] - full
    if index is not None:
        own = _at(gain.diagonal(dim1=-2, dim2=-1), index) * change
    else:  # every skill is in every row
        own = torch.einsum("...kl,...pl->...pk", gain, change)
    deviation = _at(first, index) - mu[..., None] * _at(second, index) + own
    return mu + (w * deviation).sum(dim=-1)


def _gain(covariance: Tensor, variances: Tensor) -> Tensor:
    """C (C + D)^-1, D diagonal. Shape: (..., K, K)."""
    noisy = covariance + torch.diag_embed(variances.clamp_min(1e-6))
    found: Tensor = torch.linalg.solve(noisy, covariance.expand_as(noisy))
    return found.mT  # both are symmetric


def _between(sums: SkillSums) -> tuple[Tensor, Tensor]:
    """Squared deviations of prompts' means from their skill's, and their degrees of freedom."""
    apart = sums.square - sums.total.square() / sums.weight.clamp_min(1e-6)
    return apart.clamp_min(0), (sums.weight - 1).clamp_min(0)


def _ratio(numerator: Tensor, denominator: Tensor, least: float = -torch.inf) -> Tensor:
    return (numerator / denominator.clamp_min(1e-6)).clamp_min(least)


def _mask(rewards: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones_like(rewards) if mask is None else mask.to(rewards.dtype)


def _prompts(rewards: Tensor, mask: Tensor | None) -> _Prompts:
    m = _mask(rewards, mask)
    r = rewards * m
    n, total = m.sum(dim=-1), r.sum(dim=-1)
    mean = total / n.clamp_min(1)
    within = (m * (rewards - mean[..., None]).square()).sum(dim=-1)
    others = (total[..., None] - r) / (n[..., None] - 1).clamp_min(1)
    return _Prompts(n, mean, within, others)


def _at(values: Tensor, index: Tensor | None) -> Tensor:
    """What each prompt's skills have: (..., K) to (..., P, J), or to (..., 1, K) without labels."""
    return values[..., None, :] if index is None else values[..., index]


def _membership(skills: Tensor, n_skills: int, dtype: torch.dtype) -> tuple[Tensor | None, Tensor]:
    """Each prompt's label, shape (P, 1), or ``None``; and its weights, shape (P, J).

    J is 1 with labels, and K with weights.
    """
    if skills.ndim == 1:
        if len(skills) and not 0 <= int(skills.min()) <= int(skills.max()) < n_skills:
            row = int(((skills < 0) | (skills >= n_skills)).nonzero()[0, 0])
            raise ZooError(f"Row {row} has the skill {int(skills[row])}: there are {n_skills}.")
        return skills[:, None], torch.ones(len(skills), 1, dtype=dtype, device=skills.device)
    if skills.shape[1] != n_skills:
        raise ZooError(
            f"Skill weights have {skills.shape[1]} columns: there are {n_skills} skills."
        )
    return None, skills.to(dtype)


def _own(prompts: _Prompts) -> Tensor:
    """What each prompt adds to the fields of :class:`SkillSums`. Shape: (6, ..., P)."""
    there = (prompts.n > 0).to(prompts.mean.dtype)
    return torch.stack(
        [
            there,
            prompts.mean,
            prompts.mean.square(),
            prompts.within,
            (prompts.n - 1).clamp_min(0),
            there / prompts.n.clamp_min(1),
        ]
    )


def _sums(
    own: Tensor,
    index: Tensor | None,
    weight: Tensor,
    n_skills: int,
    reduce: Callable[[Tensor], Tensor] | None,
) -> Tensor:
    """The fields of :class:`SkillSums`. Shape: (6, ..., P) to (6, ..., K)."""
    if index is None:
        sums = own @ weight
    else:
        sums = own.new_zeros(*own.shape[:-1], n_skills).index_add_(-1, index[:, 0], own)
    return sums if reduce is None else reduce(sums)


def _check_rollouts(n: Tensor) -> None:
    single = (n == 1).flatten(0, -2).any(dim=0) if n.ndim > 1 else n == 1
    if bool(single.any()):
        raise ZooError(
            f"Prompt {int(single.nonzero()[0, 0])} has one rollout: a leave-one-out mean needs "
            "two (group_size >= 2), or allow_single=True, which takes the skill's history alone."
        )
