"""Counterfactual tuples: what the target, the ligase or both could have been, and were not."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

KINDS = ("target", "e3", "both")
KIND_WEIGHTS = {"target": 1.0, "e3": 0.5, "both": 0.5}  # a ligase's ligand shows in the molecule
POWER = 0.75  # of the frequency that swaps are drawn with
NEAREST = 0.2  # share of the targets that count as alike
MAX_E3_SWAPS = 2
SCALE_WEIGHT = 0.1


class Swaps(NamedTuple):
    """S swaps of one kind for each of B tuples.

    Attributes:
        target: Shape: (B, S).
        e3: Shape: (B, S).
        valid: False where the swap is recorded for that molecule, or is no swap. Shape: (B, S).
    """

    target: Tensor
    e3: Tensor
    valid: Tensor


def is_observed(
    molecule: Tensor, target: Tensor, e3: Tensor, observed: Tensor, proteins: int
) -> Tensor:
    """Whether tuples are in the table.

    Args:
        molecule: Number of the molecule. Shape: any, broadcast with the others.
        target: Number of the target.
        e3: Number of the ligase.
        observed: Sorted codes (molecule V + target) V + E3. Shape: (M,).
        proteins: V.

    Returns:
        The broadcast shape, bool.
    """
    code = (molecule * proteins + target) * proteins + e3
    place = torch.searchsorted(observed, code.contiguous()).clamp_max(len(observed) - 1)
    return observed[place] == code


def target_weights(count: Tensor, features: Tensor, hard_fraction: float) -> Tensor:
    """How likely each target is drawn in the place of each other.

    Half (``hard_fraction``) of the draws are from the nearest fifth of the targets by the cosine of
    their features, so that telling apart a kinase from a nuclear receptor does not suffice.

    Args:
        count: Tuples of training. Shape: (V,).
        features: Zeros where not known. Shape: (V, P).
        hard_fraction: Of the draws.

    Returns:
        Rows that sum to 1, or to 0 where there is no other target. Shape: (V, V).
    """
    easy = count.float().pow(POWER).expand(len(count), -1).clone()
    easy.fill_diagonal_(0)
    unit = F.normalize(features.float(), dim=1)
    alike = (unit @ unit.T).masked_fill(easy == 0, -torch.inf)
    nearest = max(1, round(NEAREST * int((count > 0).sum())))
    nearest = min(nearest, len(count))
    threshold = alike.topk(nearest, dim=1).values[:, -1:]
    # Without features nobody is near: all draws are easy ones.
    known = (features != 0).any(dim=1)
    hard = easy * ((alike >= threshold) & (alike > -torch.inf) & known[:, None] & known)
    hard_sum, easy_sum = hard.sum(dim=1, keepdim=True), easy.sum(dim=1, keepdim=True)
    share = hard_fraction * (hard_sum > 0)
    return share * hard / hard_sum.clamp_min(1e-12) + (1 - share) * easy / easy_sum.clamp_min(1e-12)


def draw_swaps(
    kind: str,
    molecule: Tensor,
    target: Tensor,
    e3: Tensor,
    weights: Tensor,
    e3_count: Tensor,
    observed: Tensor,
    negatives: int,
) -> Swaps:
    """Draws swaps of one kind for each tuple of a batch.

    Args:
        kind: "target", "e3" or "both".
        molecule: Shape: (B,).
        target: Shape: (B,).
        e3: Shape: (B,).
        weights: Of :func:`target_weights`. Shape: (V, V).
        e3_count: Tuples of training by ligase. Shape: (V,).
        observed: See :func:`is_observed`.
        negatives: K, of target swaps and of double swaps. Ligases are swapped for at most two
            others, each once.
    """
    wide = MAX_E3_SWAPS if kind == "e3" else negatives
    swapped_target, swapped_e3 = target[:, None].expand(-1, wide), e3[:, None].expand(-1, wide)
    valid = torch.ones_like(swapped_target, dtype=torch.bool)
    if kind in ("target", "both"):
        row = weights[target]  # (B, V)
        valid = valid & (row.sum(dim=1) > 0)[:, None]
        row = row + (row.sum(dim=1, keepdim=True) == 0)
        swapped_target = torch.multinomial(row, wide, replacement=True)
    if kind in ("e3", "both"):
        row = e3_count.float().pow(POWER).expand(len(e3), -1).clone()
        row[torch.arange(len(e3), device=e3.device), e3] = 0
        # A tiny weight for the rest: drawing without replacement must not run out.
        drawn = torch.multinomial(row + 1e-12, wide, replacement=kind == "both")
        valid = valid & (row.gather(1, drawn) > 0)
        swapped_e3 = drawn
    recorded = is_observed(molecule[:, None], swapped_target, swapped_e3, observed, len(e3_count))
    return Swaps(swapped_target, swapped_e3, valid & ~recorded)


def info_nce(positive: Tensor, negative: Tensor, valid: Tensor, temperature: Tensor) -> Tensor:
    """Cross-entropy of the observed tuple among itself and its swaps.

    Args:
        positive: Its score. Shape: (B,).
        negative: Scores of its swaps. Shape: (B, S).
        valid: Those that count. Shape: (B, S).
        temperature: Shape: ().

    Returns:
        Mean over the tuples with at least one valid swap; 0 if there is none. Shape: ().
    """
    logits = torch.cat([positive[:, None], negative.masked_fill(~valid, -1e4)], dim=1) / temperature
    loss = logits.logsumexp(dim=1) - logits[:, 0]
    counted = valid.any(dim=1)
    return (loss * counted).sum() / counted.sum().clamp_min(1)


def unit_scale(r: Tensor) -> Tensor:
    """(|r|^2 / d - 1)^2, which keeps representations from shrinking or growing. Shape: ()."""
    return (r.square().mean(dim=-1) - 1).square().mean()
