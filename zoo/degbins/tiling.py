"""Large images in overlapping tiles."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from zoo.degbins.backbone import PATCH
from zoo.errors import ZooError


def tile_starts(size: int, tile: int, overlap: int) -> list[int]:
    """First pixels of tiles that cover an axis, in steps of ``tile - overlap``.

    All are multiples of the backbone's block of pixels, so that a tile sees the same blocks as the
    whole image. The last tile is moved inwards, to be as large as the others.
    """
    last = max(0, -(-(size - tile) // PATCH) * PATCH)
    return [*range(0, last, tile - overlap), last]


def ramp(length: int, overlap: int, first: bool, last: bool, like: Tensor) -> Tensor:
    """Weights along a tile: 1, but towards an inner border falling linearly to 0.

    They fall in the middle half of the overlap. The outer quarter, where a network sees least of
    what surrounds the tile, is not used. Shape: (length,).
    """
    position = torch.arange(length, device=like.device, dtype=torch.float32) + 0.5
    weight = torch.ones_like(position)
    for inner, distance in ((not first, position), (not last, length - position)):
        if inner:
            weight = weight * (2 * distance / overlap - 0.5).clamp(0, 1)
    return weight


def tiled(
    fn: Callable[[Tensor, Tensor], Sequence[Tensor]],
    d_up: Tensor,
    guide: Tensor,
    tile: int = 1024,
    overlap: int = 64,
) -> list[Tensor]:
    """Applies ``fn`` to overlapping tiles and blends its outputs linearly.

    An image no larger than a tile goes through ``fn`` as it is. Depth must be normalised before,
    by the range of the whole image. Where a network pools over the image (channel attention), a
    tile's statistics replace the image's.

    Args:
        fn: From tiles of ``d_up`` and ``guide`` to any number of maps of (B, C, h, w).
        d_up: Shape: (B, 1, H, W).
        guide: Shape: (B, 3, H, W).
        tile: Side of a tile in pixels, a multiple of 4 and more than twice ``overlap``.
        overlap: Pixels that neighbours share, a multiple of 4; beyond four times the reach of
            ``fn`` the tiles can't be told from the whole.

    Returns:
        The maps, put together. Shape of each: (B, C, H, W).

    Raises:
        ZooError: If ``tile`` and ``overlap`` do not fit each other.
    """
    height, width = d_up.shape[-2:]
    if height <= tile and width <= tile:
        return list(fn(d_up, guide))
    if tile % PATCH or overlap % PATCH or not 0 < 2 * overlap < tile:
        raise ZooError(
            f"tile is {tile} and overlap {overlap}: both must be multiples of {PATCH}, "
            "and tile more than twice the overlap."
        )
    total: list[Tensor] = []
    weights = d_up.new_zeros(1, 1, height, width, dtype=torch.float32)
    rows, columns = tile_starts(height, tile, overlap), tile_starts(width, tile, overlap)
    for y in rows:
        for x in columns:
            part = (..., slice(y, y + tile), slice(x, x + tile))
            outputs = fn(d_up[part], guide[part])
            h, w = outputs[0].shape[-2:]
            weight = ramp(h, overlap, y == 0, y == rows[-1], d_up)[:, None] * ramp(
                w, overlap, x == 0, x == columns[-1], d_up
            )  # (h, w)
            if not total:
                total = [o.new_zeros(*o.shape[:2], height, width) for o in outputs]
            for whole, output in zip(total, outputs, strict=True):
                whole[part] += weight.to(output.dtype) * output
            weights[part] += weight
    return [whole / weights.to(whole.dtype) for whole in total]
