"""Losses of the two stages of training."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

MAX_WEIGHT = 10.0


def class_weights(counts: Tensor) -> Tensor:
    """1 / sqrt(frequency), 1 for the most frequent class and at most 10. Shape: (classes,)."""
    share = counts / counts.max().clamp_min(1)
    return share.clamp_min(MAX_WEIGHT**-2).rsqrt()


def focal_loss(logits: Tensor, labels: Tensor, weights: Tensor, gamma: float = 2.0) -> Tensor:
    """Class-weighted focal cross-entropy (arXiv 1708.02002).

    Args:
        logits: Shape: (..., classes).
        labels: Class indices; others are left out. Shape: (...).
        weights: Of the classes. Shape: (classes,).
        gamma: 0 for plain cross-entropy.

    Returns:
        The weighted mean over the beats; 0 if there is none.
    """
    known = (labels >= 0) & (labels < logits.shape[-1])
    log_p = logits.float().log_softmax(dim=-1)
    of = labels.clamp(0, logits.shape[-1] - 1)
    true = log_p.gather(-1, of[..., None])[..., 0]
    weight = weights[of] * known
    loss = -((1 - true.exp()) ** gamma) * true
    return (loss * weight).sum() / weight.sum().clamp_min(1e-6)


def heat_loss(logits: Tensor, peaks: Tensor, there: Tensor, stride: int) -> Tensor:
    """Binary cross-entropy of "an R peak lies in this token".

    Args:
        logits: Shape: (B, L).
        peaks: In samples. Shape: (B, n).
        there: Which of them are beats. Shape: (B, n).
        stride: Samples a token.
    """
    target = torch.zeros_like(logits)
    place = (peaks / stride).round().long().clamp(0, logits.shape[1] - 1)
    target.scatter_reduce_(1, place, there.to(target.dtype), "amax")
    return F.binary_cross_entropy_with_logits(logits, target)
