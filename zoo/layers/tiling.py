"""Large images, or latents, in overlapping tiles whose results are blended linearly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from zoo.errors import ZooError


def tile_starts(size: int, tile: int, overlap: int, block: int = 1) -> list[int]:
    """First pixels of tiles that cover an axis, in steps of ``tile - overlap``.

    All are multiples of ``block``, so that a network that works on blocks of pixels sees the same
    ones in a tile as in the whole image. The last tile is moved inwards, to be as large as the
    others.
    """
    last = max(0, -(-(size - tile) // block) * block)
    return [*range(0, last, tile - overlap), last]


def ramp(
    length: int, overlap: int, first: bool, last: bool, device: torch.device, unused: float = 0.0
) -> Tensor:
    """Weights along a tile: 1, but towards an inner border falling linearly to 0.

    They fall over the overlap, less a share of it that is not used at either end: where a network
    sees least of what surrounds the tile. Shape: (length,).
    """
    position = torch.arange(length, device=device, dtype=torch.float32) + 0.5
    weight = torch.ones_like(position)
    for inner, distance in ((not first, position), (not last, length - position)):
        if inner:
            weight = weight * ((distance / overlap - unused) / (1 - 2 * unused)).clamp(0, 1)
    return weight


def tiled(
    fn: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Tensor],
    tile: int,
    overlap: int,
    block: int = 1,
    unused: float = 0.0,
) -> list[Tensor]:
    """Applies ``fn`` to overlapping tiles and blends its outputs.

    Inputs no larger than a tile go through ``fn`` as they are. What a network pools over the image
    (channel attention) it pools over the tile instead.

    Args:
        fn: From a tile of each input to any number of tensors of the tile's height and width.
        inputs: Shape of each: (..., H, W).
        tile: Side of a tile in pixels, a multiple of ``block`` and more than twice ``overlap``.
        overlap: Pixels that neighbours share, a multiple of ``block``; beyond four times the reach
            of ``fn`` the tiles can't be told from the whole.
        block: See :func:`tile_starts`.
        unused: See :func:`ramp`; less than 0.5.

    Returns:
        The outputs, put together. Shape of each: (..., H, W).

    Raises:
        ZooError: If ``tile`` and ``overlap`` do not fit each other.
    """
    height, width = inputs[0].shape[-2:]
    if height <= tile and width <= tile:
        return list(fn(*inputs))
    if tile % block or overlap % block or not 0 < 2 * overlap < tile:
        multiples = f"both must be multiples of {block}, and " if block > 1 else ""
        raise ZooError(
            f"tile is {tile} and overlap {overlap}: {multiples}tile must be more than twice the "
            "overlap."
        )
    total: list[Tensor] = []
    device = inputs[0].device
    weights = torch.zeros(height, width, device=device)
    rows, columns = (tile_starts(size, tile, overlap, block) for size in (height, width))
    for y in rows:
        for x in columns:
            part = (..., slice(y, y + tile), slice(x, x + tile))
            outputs = fn(*(value[part] for value in inputs))
            h, w = outputs[0].shape[-2:]
            down = ramp(h, overlap, y == 0, y == rows[-1], device, unused)
            weight = down[:, None] * ramp(w, overlap, x == 0, x == columns[-1], device, unused)
            if not total:
                total = [o.new_zeros(*o.shape[:-2], height, width) for o in outputs]
            for whole, output in zip(total, outputs, strict=True):
                whole[part] += weight.to(output.dtype) * output
            weights[part] += weight
    return [whole / weights.to(whole.dtype) for whole in total]
