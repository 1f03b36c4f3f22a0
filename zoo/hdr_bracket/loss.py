"""Losses of the fusion: of radiance on a logarithmic scale, and of pictures."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics.functional.image import structural_similarity_index_measure

from zoo.display import encode

EPS = 2.0**-8  # of the white: log errors below it are noise of an 8-bit input


def log2_radiance(radiance: Tensor) -> Tensor:
    """log2(H + 2^-8) of radiance relative to the input's white."""
    return (radiance.float().clamp_min(0) + EPS).log2()


def gradient_l1(pred: Tensor, target: Tensor) -> Tensor:
    """Mean absolute difference of neighbours' differences, along rows and columns."""
    rows = (pred.diff(dim=-2) - target.diff(dim=-2)).abs().mean()
    columns = (pred.diff(dim=-1) - target.diff(dim=-1)).abs().mean()
    return rows + columns


def radiance_loss(pred: Tensor, target: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    """|log2(H' + eps) - log2(H + eps)|_1 and a tenth of its gradients' difference.

    Args:
        pred: Radiance. Shape: (B, 3, H, W).
        target: The truth. Shape: (B, 3, H, W).
        weight: Of each pixel in the first term. Shape: (B, 1, H, W).
    """
    a, b = log2_radiance(pred), log2_radiance(target)
    return (weight * (a - b).abs()).mean() + 0.1 * gradient_l1(a, b)


def picture_loss(pred: Tensor, target: Tensor) -> Tensor:
    """L1, gradients and 0.2 (1 - SSIM) of linear pictures, as a display encodes them.

    Args:
        pred: Linear, 0..1. Shape: (B, 3, H, W).
        target: The truth. Shape: (B, 3, H, W).
    """
    a, b = encode(pred.float()), encode(target.float())
    ssim = structural_similarity_index_measure(a, b, data_range=1.0)
    assert isinstance(ssim, Tensor)
    return torch.nn.functional.l1_loss(a, b) + 0.1 * gradient_l1(a, b) + 0.2 * (1 - ssim)
