"""A thin lens before a scene with known disparity: pictures focused at any distance.

The blur of a point is a disc of radius A |d - d_f|, with d its disparity (inverse depth), d_f that
in focus, and A the aperture. Layers of equal disparity are blurred one by one, in linear light,
with their coverage, and laid over each other from back to front, so that a blurred near object
covers what is behind it and shows it through its edge.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

LAYERS = 12  # of disparity
MAX_RADIUS = 5.0  # pixels, of the most blurred layer when the other end is in focus


def disc(radius: float, reach: int) -> Tensor:
    """A disc with a soft rim of one pixel, summing to 1. Shape: (2 reach + 1, 2 reach + 1)."""
    axis = torch.arange(-reach, reach + 1, dtype=torch.float32)
    distance = (axis[:, None].square() + axis.square()).sqrt()
    kernel = (radius + 0.5 - distance).clamp(0, 1)
    return kernel / kernel.sum()


def layers_of(disparity: Tensor) -> tuple[Tensor, Tensor]:
    """Cuts a scene into layers of equal disparity, far to near.

    Args:
        disparity: 0 (far) to 1 (near). Shape: (H, W).

    Returns:
        Coverage of each layer, 0 or 1, (L, H, W), and its disparity, (L,).
    """
    index = (disparity * LAYERS).long().clamp(0, LAYERS - 1)
    coverage = F.one_hot(index, LAYERS).permute(2, 0, 1).float()
    return coverage, (torch.arange(LAYERS) + 0.5) / LAYERS


def render(sharp: Tensor, disparity: Tensor, focus: Tensor, aperture: float = MAX_RADIUS) -> Tensor:
    """Pictures of one scene at several focus settings.

    Args:
        sharp: Linear, everything in focus. Shape: (3, H, W).
        disparity: 0 (far) to 1 (near). Shape: (H, W).
        focus: Disparities in focus. Shape: (N,).
        aperture: A: radius in pixels of a blur across the whole range of disparity.

    Returns:
        Linear. Shape: (N, 3, H, W).
    """
    coverage, levels = layers_of(disparity)
    behind = coverage.cumsum(dim=0)  # of each layer and all that is farther
    reach = int(aperture) + 1
    stack = torch.cat([sharp[None] * coverage[:, None], coverage[:, None]], dim=1)  # (L, 4, H, W)
    padded = F.pad(stack, (reach,) * 4, mode="replicate")
    known = F.pad(behind[:, None], (reach,) * 4, mode="replicate")
    pictures = []
    for depth in focus.tolist():  # a few settings a scene, rendered once
        kernels = torch.stack([disc(aperture * abs(float(d) - depth), reach) for d in levels])
        weights = kernels.repeat_interleave(4, dim=0)[:, None]  # (4 L, 1, k, k)
        blurred = F.conv2d(padded.flatten(0, 1)[None], weights, groups=4 * LAYERS)
        blurred = blurred.view(LAYERS, 4, *sharp.shape[1:])
        # A layer's edge against a farther one fades; against a nearer one it goes on beneath it, as
        # far as can be told: coverage counts among what is no nearer.
        below = F.conv2d(known[:, 0][None], kernels[:, None], groups=LAYERS)[0]
        picture, seen = torch.zeros_like(sharp), torch.zeros_like(disparity)
        for layer, base in zip(blurred, below, strict=True):
            alpha = (layer[3] / base.clamp_min(1e-4)).clamp(0, 1)
            color = layer[:3] / layer[3].clamp_min(1e-4)
            picture = picture * (1 - alpha) + color * alpha
            seen = seen * (1 - alpha) + alpha
        # A sharp far layer ends at what covers it, whose blurred edge lets it through: what little
        # light is missing there is that of the rest.
        pictures.append(picture / seen.clamp_min(1e-4))
    return torch.stack(pictures)
