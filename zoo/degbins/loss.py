"""Losses of DegBins. Depths are normalised, masks are true where the truth is known."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.degbins.bins import StageBins
from zoo.degbins.head import KERNEL_SIZE

MARGIN = KERNEL_SIZE // 2
INNER = (..., slice(MARGIN, -MARGIN), slice(MARGIN, -MARGIN))  # where a kernel fits


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of ``values`` where ``mask`` is true, 0 if that is nowhere. Same shape, gives ()."""
    return values.masked_fill(~mask, 0).sum() / mask.sum().clamp_min(1)


def reconstruction_loss(stages: Sequence[Tensor], target: Tensor, mask: Tensor) -> Tensor:
    """L_rec = sum_s 0.5^(S-s) mean |D_s - D|: each stage counts half as much as the next.

    Args:
        stages: Estimates D_1 .. D_S. Shape of each: (B, 1, H, W).
        target: True depth D, anything (also NaN) where unknown. Shape: (B, 1, H, W).
        mask: Where the truth is known, bool. Shape: (B, 1, H, W).

    Returns:
        Scalar; 0 if no pixel is known.
    """
    target = target.masked_fill(~mask, 0)  # a NaN would survive in the gradient
    errors = [masked_mean((stage - target).abs(), mask) for stage in stages]
    weights = [0.5 ** (len(errors) - s) for s in range(1, len(errors) + 1)]
    return torch.stack([w * error for w, error in zip(weights, errors, strict=True)]).sum()


def degrade(depth: Tensor, kernels: Tensor) -> Tensor:
    """Blurs each pixel with a kernel of its own, where the kernel fits into the image.

    Args:
        depth: Shape: (B, 1, H, W).
        kernels: Logits of the kernels' weights, row by row. Shape: (B, 25, H, W).

    Returns:
        Blurred depth without the outer 2 pixels, float32. Shape: (B, 1, H - 4, W - 4).
    """
    weights = kernels[INNER].float().softmax(dim=1)
    patches = F.unfold(depth.float(), KERNEL_SIZE).view(weights.shape)  # (B, 25, H - 4, W - 4)
    return (weights * patches).sum(dim=1, keepdim=True)


def degradation_loss(
    kernels: Tensor, depth: Tensor, d_up: Tensor, mask: Tensor | None = None
) -> Tensor:
    """L_deg: the estimate, blurred again, must give the input (DORNet's idea).

    It needs no truth, only the input.

    Args:
        kernels: Logits of one 5x5 kernel a pixel, from e_S. Shape: (B, 25, H, W).
        depth: Estimate D_S. Shape: (B, 1, H, W).
        d_up: Upsampled low-resolution depth D_up. Shape: (B, 1, H, W).
        mask: Pixels to compare, bool; ``None`` for all. Shape: (B, 1, H, W).

    Returns:
        Scalar mean of absolute differences; 0 if no pixel is compared.
    """
    error = (degrade(depth, kernels) - d_up[INNER]).abs()
    return error.mean() if mask is None else masked_mean(error, mask[INNER])


def soft_label(position: Tensor, centers: Tensor) -> Tensor:
    """Probabilities of bins whose expectation is ``position``: linear between the two nearest.

    Args:
        position: Position within the range; beyond the outermost centres it is clamped to them.
            Shape: (B, 1, H, W).
        centers: Increasing positions of the bins. Shape: (1, K, 1, 1) or (B, K, H, W).

    Returns:
        At most two non-zero probabilities a pixel, which sum to 1. Shape: (B, K, H, W).
    """
    if centers.shape[1] == 1:
        return torch.ones_like(position)
    position = position.clamp(min=centers[:, :1], max=centers[:, -1:])
    # Of neighbours a < b, bin b rises from 0 to 1 on the way from a to b, where bin a falls.
    gaps = centers.diff(dim=1)
    rise = ((position - centers[:, :-1]) / gaps).clamp(0, 1)  # (B, K-1, H, W)
    return F.pad(rise, (0, 0, 0, 0, 1, 0), value=1.0) - F.pad(rise, (0, 0, 0, 0, 0, 1))


def bin_cross_entropy(bins: StageBins, residual: Tensor, mask: Tensor) -> Tensor:
    """L_ce of one stage: cross-entropy of p_s against the soft label of the true residual.

    The label follows the stage's range, but no gradient reaches the range by it: else the range
    could move to where the label is easier.

    Args:
        bins: The stage's distribution.
        residual: True residual D - D_up, anything where unknown. Shape: (B, 1, H, W).
        mask: Where the truth is known, bool. Shape: (B, 1, H, W).

    Returns:
        Scalar in nats; 0 if no pixel is known.
    """
    residual = residual.masked_fill(~mask, 0)
    low, high = bins.low.detach(), bins.high.detach()
    label = soft_label((residual - low) / (high - low), bins.centers.detach())
    log_p = bins.logits.float().log_softmax(dim=1)
    return masked_mean(-(label * log_p).sum(dim=1, keepdim=True), mask)
