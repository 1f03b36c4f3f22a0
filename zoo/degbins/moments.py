"""Moments of a pixel's surroundings."""

import torch
from torch import Tensor
from torch.nn import functional as F


def local_moments(x: Tensor, radius: int, min_std: float) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over a square window, at borders over the part inside.

    Args:
        x: Shape: (B, C, H, W).
        radius: Of the window, pixels.
        min_std: Added in quadrature to the standard deviation.

    Returns:
        Both, the latter positive. Shape of each: (B, C, H, W).
    """
    side = 2 * radius + 1
    moments = torch.cat([x, x.square()], dim=1)
    for size, padding in (((side, 1), (radius, 0)), ((1, side), (0, radius))):
        moments = F.avg_pool2d(moments, size, stride=1, padding=padding, count_include_pad=False)
    mean, square = moments.chunk(2, dim=1)
    return mean, ((square - mean.square()).clamp_min(0) + min_std**2).sqrt()
