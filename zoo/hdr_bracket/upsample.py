"""Large photographs: the bracket at reduced size, its gain brought to the full-size input.

What a smaller bracket adds to the input is a smooth gain in stops, but for edges, and those are the
input's own. So the gain, not the picture, is enlarged, by a joint bilateral filter on the input
(J. Kopf et al., Joint Bilateral Upsampling, 2007): the input's detail stays.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

SIGMA_SPACE = 0.75  # pixels of the reduced image
SIGMA_RANGE = 0.08  # display values
RADIUS = 1  # pixels of the reduced image
STRIP = 256  # rows of the large image worked on at once, for memory


def shrink(image: Tensor, max_side: int) -> Tensor:
    """The image with its longer side brought to ``max_side``. Shape: (B, 3, H, W)."""
    height, width = image.shape[-2:]
    factor = max_side / max(height, width)
    size = (max(1, round(height * factor)), max(1, round(width * factor)))
    return F.interpolate(image, size, mode="bilinear", antialias=True).clamp(0, 1)


def joint_bilateral_upsample(low: Tensor, low_guide: Tensor, guide: Tensor) -> Tensor:
    """Enlarges a map so that its edges are those of the guide.

    Args:
        low: Shape: (B, C, h, w).
        low_guide: The guide at the map's size, 0..1. Shape: (B, 3, h, w).
        guide: Shape: (B, 3, H, W).

    Returns:
        Shape: (B, C, H, W).
    """
    height = guide.shape[-2]
    strips = [
        _strip(low, low_guide, guide, top, min(top + STRIP, height))
        for top in range(0, height, STRIP)
    ]
    return torch.cat(strips, dim=-2)


def _strip(low: Tensor, low_guide: Tensor, guide: Tensor, top: int, bottom: int) -> Tensor:
    part = guide[..., top:bottom, :]
    y = _position(top, bottom, guide.shape[-2], low.shape[-2], guide.device)
    x = _position(0, guide.shape[-1], guide.shape[-1], low.shape[-1], guide.device)
    near_y, near_x = y.round(), x.round()
    total = low.new_zeros(*low.shape[:2], *part.shape[-2:])
    weights = low.new_zeros(low.shape[0], 1, *part.shape[-2:])
    for dy in range(-RADIUS, RADIUS + 1):
        for dx in range(-RADIUS, RADIUS + 1):
            rows = (near_y + dy).clamp(0, low.shape[-2] - 1).long()
            columns = (near_x + dx).clamp(0, low.shape[-1] - 1).long()
            space = (y - near_y - dy).square()[:, None] + (x - near_x - dx).square()
            difference = (part - low_guide[..., rows, :][..., columns]).square()
            # A floor, so that a pixel like none of its neighbours takes their mean.
            weight = 1e-6 + torch.exp(
                -space / (2 * SIGMA_SPACE**2)
                - difference.sum(dim=1, keepdim=True) / (2 * SIGMA_RANGE**2)
            )
            total += weight * low[..., rows, :][..., columns]
            weights += weight
    return total / weights


def _position(start: int, stop: int, large: int, small: int, device: torch.device) -> Tensor:
    """Coordinates of the large image's pixels in the small one."""
    return (torch.arange(start, stop, device=device) + 0.5) * (small / large) - 0.5
