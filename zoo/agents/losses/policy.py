"""Policy-gradient losses over tokens.

Throughout, ``ls``, ``lo``, ``lr`` and ``lt`` are log-probabilities of the tokens that were sampled,
under the current policy, the one that sampled them, a reference and a teacher; ``mask`` is true on
the agent's own tokens and false on observations and padding. Shape of all: (B, T).

The losses are written for gradients that are averaged over processes, as DDP does: each process
divides its sum by its share of the global count, so that the average is that of one process with
all samples.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from zoo.distributed import sum_over_ranks, world_size
from zoo.errors import check_choice

AGGREGATIONS = ("token", "sequence", "group")
LOG_RATIO_LIMIT = 20.0  # e^20: beyond it a float32 difference of log-probabilities means nothing


class Advantage(NamedTuple):
    """Advantages of groups of rollouts.

    Attributes:
        values: 0 where masked, and in groups whose rewards are all equal. Shape: (P, G).
        zero_groups: How many groups have equal rewards throughout, and so teach nothing.
    """

    values: Tensor
    zero_groups: Tensor


def grpo_advantage(
    rewards: Tensor, normalise: str = "std", eps: float = 1e-6, mask: Tensor | None = None
) -> Advantage:
    """Rewards less their group's mean, over their group's standard deviation (arXiv 2402.03300).

    Args:
        rewards: Shape: (P, G).
        normalise: "std", the deviation with G - 1 in its denominator; or "none".
        eps: Added to the deviation.
        mask: Which rollouts count; ``None`` for all. Shape: (P, G).
    """
    check_choice("normalise", normalise, ("std", "none"))
    m = torch.ones_like(rewards) if mask is None else mask.to(rewards.dtype)
    count = m.sum(dim=1, keepdim=True)
    mean = (m * rewards).sum(dim=1, keepdim=True) / count.clamp_min(1)
    centred = (rewards - mean) * m
    std = (centred.square().sum(dim=1, keepdim=True) / (count - 1).clamp_min(1)).sqrt()
    equal = (centred.abs() <= 1e-7).all(dim=1)
    values = centred / (std + eps) if normalise == "std" else centred
    return Advantage(values.masked_fill(equal[:, None], 0), equal.sum())


def rloo_advantage(rewards: Tensor) -> Advantage:
    """Rewards less the mean of the others of their group (arXiv 2402.14740). Shape: (P, G)."""
    size = rewards.shape[1]
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    equal = (centred.abs() <= 1e-7).all(dim=1)
    values = centred * size / max(size - 1, 1)
    return Advantage(values.masked_fill(equal[:, None], 0), equal.sum())


def aggregate(
    values: Tensor,
    mask: Tensor,
    how: str = "token",
    groups: Tensor | None = None,
    count: Tensor | None = None,
) -> Tensor:
    """The mean of per-token values over the samples of all processes.

    Args:
        values: Shape: (B, T).
        mask: Which of them count. Shape: (B, T), bool.
        how: "token": every token counts alike. "sequence": every response does, whatever its
            length. "group": every group of responses does, and within it every token.
        groups: Number of each response's group, for "group"; no group is on two processes or in
            two micro-batches. Shape: (B,).
        count: What to divide by, where this is one of several micro-batches: the
            :func:`aggregate_count` of all.

    Returns:
        A scalar. Where nothing counts it is a zero that still depends on ``values``, since DDP
        waits for the gradient of every parameter.
    """
    kept = values.masked_fill(~mask, 0)
    per_row, tokens = kept.sum(dim=1), mask.sum(dim=1).to(values.dtype)
    if how == "token":
        total = per_row.sum()
    elif how == "sequence":
        total = (per_row / tokens.clamp_min(1)).sum()
    else:
        sizes = _group_sizes(mask, groups)
        assert groups is not None
        sums = torch.zeros_like(sizes).index_add(0, groups, per_row)
        total = (sums / sizes.clamp_min(1)).sum()
    if count is None:
        count = aggregate_count(mask, how, groups)
    return total * world_size() / count.clamp_min(1)


def aggregate_count(mask: Tensor, how: str = "token", groups: Tensor | None = None) -> Tensor:
    """Number of tokens, responses or groups with a token, over all processes; a scalar."""
    check_choice("how", how, AGGREGATIONS)
    if how == "token":
        count = mask.sum()
    elif how == "sequence":
        count = mask.any(dim=1).sum()
    else:
        count = (_group_sizes(mask, groups) > 0).sum()
    return sum_over_ranks(count.float())


def _group_sizes(mask: Tensor, groups: Tensor | None) -> Tensor:
    if groups is None:
        raise TypeError("aggregate(how='group') needs groups.")
    size = int(groups.max()) + 1 if len(groups) else 0
    tokens = mask.sum(dim=1).float()
    return tokens.new_zeros(size).index_add(0, groups, tokens)


def _log_ratio(numerator: Tensor, denominator: Tensor, mask: Tensor | None = None) -> Tensor:
    difference = numerator - denominator
    if mask is not None:  # else an overflow where nothing counts would turn the gradient to NaN
        difference = difference.masked_fill(~mask, 0)
    return difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


class Surrogate(NamedTuple):
    """The clipped surrogate.

    Attributes:
        loss: To minimise; a scalar.
        clipped: Share of this process's agent tokens whose gradient is cut off; a scalar.
    """

    loss: Tensor
    clipped: Tensor


def clipped_surrogate(
    ls: Tensor,
    lo: Tensor,
    advantage: Tensor,
    mask: Tensor,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    how: str = "token",
    groups: Tensor | None = None,
    count: Tensor | None = None,
) -> Surrogate:
    """PPO's surrogate -min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A), rho = exp(ls - lo).

    Args:
        ls: Shape: (B, T).
        lo: Shape: (B, T).
        advantage: Of each response, shape (B,), or of each token, shape (B, T).
        mask: Shape: (B, T), bool.
        eps_low: Width of the clip below 1.
        eps_high: Above 1.
        how: See :func:`aggregate`.
        groups: See :func:`aggregate`.
        count: See :func:`aggregate`.
    """
    if advantage.ndim == 1:
        advantage = advantage[:, None]
    ratio = _log_ratio(ls, lo, mask).exp()
    free = ratio * advantage
    clipped = ratio.clamp(1 - eps_low, 1 + eps_high) * advantage
    loss = aggregate(-torch.minimum(free, clipped), mask, how, groups, count)
    with torch.no_grad():
        cut = ((clipped < free) & mask).sum() / mask.sum().clamp_min(1)
    return Surrogate(loss, cut)


def kl_k3(ls: Tensor, lr: Tensor) -> Tensor:
    """Schulman's estimate e^d - d - 1 of KL(current || reference), d = lr - ls. Shape: (B, T).

    Not negative, and unbiased as a *value* on the current policy's samples. Its gradient is
    (1 - e^d) grad ls, which is not that of the KL: see :func:`iw_reverse_kl`.
    """
    d = _log_ratio(lr, ls)
    return d.exp() - d - 1


def iw_reverse_kl(
    ls: Tensor, lo: Tensor, lt: Tensor, mask: Tensor | None = None, limit: float | None = None
) -> Tensor:
    """Reverse KL to a teacher, as rho * k3(ls, lt) with a differentiable rho = exp(ls - lo).

    With d = lt - ls: grad (rho k3) = rho (e^d - d - 1) grad ls + rho (1 - e^d) grad ls
    = rho (ls - lt) grad ls, of which the mean over the behaviour policy's samples is the gradient
    of KL(student || teacher). Used by Skill-SD (arXiv 2604.10674).

    Args:
        ls: Shape: (B, T).
        lo: Shape: (B, T).
        lt: Of the teacher, without gradient. Shape: (B, T).
        mask: Where false, the result is 0. Shape: (B, T), bool.
        limit: Largest rho; beyond it rho is a constant, which trades bias for variance.

    Returns:
        Per-token values. Shape: (B, T).
    """
    rho = _log_ratio(ls, lo, mask).exp()
    if limit is not None:
        rho = rho.clamp_max(limit)
    d = _log_ratio(lt, ls, mask)
    return rho * (d.exp() - d - 1)


def entropy_bonus(
    entropy: Tensor, mask: Tensor, how: str = "token", count: Tensor | None = None
) -> Tensor:
    """The negated mean entropy of the next token, to add to a loss with a positive weight."""
    return -aggregate(entropy, mask, how, count=count)
