"""The binned residual: a distribution over positions within a range, and its moments."""

from typing import NamedTuple

import torch
from torch import Tensor

MIN_BIN_WIDTH = 1e-3  # of the range, before renormalising (AdaBins, section 3.2)


class StageBins(NamedTuple):
    """The distribution of one stage: bin k of K is centred at low + (high - low) * centers[k].

    Attributes:
        logits: Unnormalised log-probabilities of the bins. Shape: (B, K, H, W).
        low: Lower end R_{s-1} - l_s of the range, float32. Shape: (B, 1, H, W).
        high: Upper end R_{s-1} + h_s of the range, float32. Shape: (B, 1, H, W).
        centers: Increasing positions in 0..1 within the range, float32. Shape: (1, K, 1, 1) for
            uniform widths, (B, K, H, W) for adaptive ones.
    """

    logits: Tensor
    low: Tensor
    high: Tensor
    centers: Tensor


def uniform_centers(bins: int, device: torch.device | None = None) -> Tensor:
    """Centres (k - 1/2) / K of K equal bins of 0..1. Shape: (1, K, 1, 1)."""
    return ((torch.arange(bins, device=device) + 0.5) / bins).view(1, bins, 1, 1)


def adaptive_centers(logits: Tensor) -> Tensor:
    """Centres of bins whose widths are a softmax, per pixel (AdaBins, eq. 2 and 3).

    Args:
        logits: Scores of the widths. Shape: (B, K, H, W).

    Returns:
        Increasing centres in 0..1. Shape: (B, K, H, W).
    """
    widths = logits.softmax(dim=1) + MIN_BIN_WIDTH
    widths = widths / widths.sum(dim=1, keepdim=True)
    return widths.cumsum(dim=1) - 0.5 * widths


def expected_residual(bins: StageBins) -> Tensor:
    """Mean of the binned residual, without a tensor of bin values.

    R_s = sum_k p_k c_k with c_k = low + (high - low) * t_k is low + (high - low) * sum_k p_k t_k.
    Positions are taken from the middle of the range, so that uniform probabilities over equal bins
    give that middle exactly.

    Args:
        bins: The distribution; its logits may be in half precision.

    Returns:
        Shape: (B, 1, H, W).
    """
    p = bins.logits.float().softmax(dim=1)  # half precision would show as steps in the depth
    # Products and sums rather than a matrix product, which may be rounded to TF32.
    mean = (p * (bins.centers - 0.5)).sum(dim=1, keepdim=True)
    return 0.5 * (bins.low + bins.high) + (bins.high - bins.low) * mean


def deviation(bins: StageBins) -> Tensor:
    """Standard deviation of the binned residual. Shape: (B, 1, H, W)."""
    p = bins.logits.float().softmax(dim=1)
    t = bins.centers - 0.5
    mean = (p * t).sum(dim=1, keepdim=True)
    variance = (p * t.square()).sum(dim=1, keepdim=True) - mean.square()
    return (bins.high - bins.low) * variance.clamp_min(1e-12).sqrt()
