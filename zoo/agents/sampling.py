"""Draws of tokens: from a generator, or from numbers of each row's own."""

from __future__ import annotations

import torch
from torch import Tensor


def uniform(
    size: int,
    step: int,
    generator: torch.Generator | None,
    keys: Tensor | None,
    device: torch.device,
) -> Tensor:
    """One number in [0, 1) for each row. Shape: (B,), float32."""
    if keys is None:
        where = generator.device if generator is not None else device
        return torch.rand(size, generator=generator, device=where).to(device)
    return counter_uniform(keys.to(device), step)


def counter_uniform(keys: Tensor, counter: int) -> Tensor:
    """Numbers in [0, 1) that depend on key and counter alone: splitmix64's finaliser of both.

    Args:
        keys: Shape: (B,), int64.
        counter: Of the draw.
    """
    # int64 arithmetic wraps as the unsigned one does; only the right shifts need a mask.
    offset = (counter + 1) * 0x9E3779B97F4A7C15 % 2**64
    x = keys * -7046029254386353131 + (offset - 2**64 if offset >= 2**63 else offset)
    x = (x ^ ((x >> 30) & (2**34 - 1))) * -4658895280553007687
    x = (x ^ ((x >> 27) & (2**37 - 1))) * -7723592293110705685
    x = x ^ ((x >> 31) & (2**33 - 1))
    return ((x >> 40) & (2**24 - 1)).float() / 2**24


def draw_token(logprobs: Tensor, top_p: float, chance: Tensor) -> Tensor:
    """A token of each row by the inverse of its distribution function. Shape: (B, V) to (B,)."""
    probabilities = logprobs.exp()
    if top_p < 1:
        values, order = probabilities.sort(dim=1, descending=True)
        kept = values.masked_fill(values.cumsum(dim=1) - values >= top_p, 0)
        probabilities = torch.zeros_like(values).scatter(1, order, kept)
    edges = probabilities.cumsum(dim=1)
    total = edges[:, -1:]
    # Rounding may reach the total, past the last token that has any probability.
    below = torch.nextafter(total, torch.zeros_like(total))
    points = torch.minimum(chance[:, None] * total, below)
    return torch.searchsorted(edges, points, right=True)[:, 0]
