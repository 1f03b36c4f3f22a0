"""Latents of large photographs in overlapping tiles.

Spatial attention costs the square of the cells, so above a tile's side the network sees tiles. Each
step of the sampler blends their estimates, so that all tiles follow one trajectory and no seam
shows (MultiDiffusion, https://arxiv.org/abs/2302.08113).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def starts(size: int, tile: int, overlap: int) -> list[int]:
    """First cells of tiles that cover an axis; the last one is moved inwards."""
    last = max(0, size - tile)
    return [*range(0, last, tile - overlap), last]


def ramp(length: int, overlap: int, first: bool, last: bool, device: torch.device) -> Tensor:
    """Weights along a tile: falling linearly over the overlap towards inner borders."""
    position = torch.arange(length, device=device, dtype=torch.float32) + 0.5
    weight = torch.ones_like(position)
    for inner, distance in ((not first, position), (not last, length - position)):
        if inner:
            weight = weight * (distance / overlap).clamp(max=1)
    return weight


def tiled(
    fn: Callable[[Tensor, Tensor], Tensor], z: Tensor, other: Tensor, tile: int, overlap: int
) -> Tensor:
    """Applies ``fn`` to tiles of two tensors of equal height and width, and blends the results.

    Args:
        fn: From a tile of each to a tensor of the first one's height and width.
        z: Shape: (..., H, W).
        other: Shape: (..., H, W).
        tile: Side of a tile; an input no larger goes through ``fn`` as it is.
        overlap: What neighbours share, less than ``tile``.
    """
    height, width = z.shape[-2:]
    if height <= tile and width <= tile:
        return fn(z, other)
    rows, columns = starts(height, tile, overlap), starts(width, tile, overlap)
    total: Tensor | None = None
    weights = z.new_zeros(height, width, dtype=torch.float32)
    for y in rows:
        for x in columns:
            part = (..., slice(y, y + tile), slice(x, x + tile))
            out = fn(z[part], other[part]).float()
            h, w = out.shape[-2:]
            weight = ramp(h, overlap, y == 0, y == rows[-1], z.device)[:, None] * ramp(
                w, overlap, x == 0, x == columns[-1], z.device
            )
            if total is None:
                total = out.new_zeros(*out.shape[:-2], height, width)
            total[part] += weight * out
            weights[part] += weight
    assert total is not None
    return total / weights
