"""The semantic delta of a pair, and what keeps the layout of its target from leaking through it."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

CONDITIONS = ("delta", "target", "pair")
CROP = 0.8  # smallest side of the random crop
ANGLE = math.radians(10)  # largest rotation


def token_norm(features: Tensor) -> Tensor:
    """LN without parameters over the channel, in float32.

    It stands before the difference, not after: else a few channels of large size rule the delta.
    """
    return F.layer_norm(features.float(), features.shape[-1:])


def semantic_delta(source: Tensor, target: Tensor) -> Tensor:
    """Delta = LN(phi(y)) - LN(phi(x)).

    Args:
        source: phi(x), patch features before the edit. Shape: (B, P, C).
        target: phi(y), after it.

    Returns:
        float32. Shape: (B, P, C).
    """
    return token_norm(target) - token_norm(source)


def condition_tokens(source: Tensor, target: Tensor, condition: str) -> Tensor:
    """What the adapter sees of a pair.

    Args:
        source: phi(x). Shape: (B, P, C).
        target: phi(y).
        condition: "delta", the method; or of the baselines "target", LN(phi(y)), and "pair", both
            feature sets side by side.

    Returns:
        Shape: (B, P, C), of "pair" (B, 2 P, C).
    """
    if condition == "delta":
        return semantic_delta(source, target)
    if condition == "target":
        return token_norm(target)
    return torch.cat([token_norm(source), token_norm(target)], dim=1)


def augment_pair(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The same random crop, flip and small rotation for both images of each pair.

    The encoder sees the pair so, the editor without: what the delta says of positions is then
    not where the target has them, and cannot be painted back.

    Args:
        source: Shape: (B, 3, H, W).
        target: The same.

    Returns:
        Both, of the same shape.
    """
    count, device = len(source), source.device
    scale = CROP + (1 - CROP) * torch.rand(count, device=device)
    shift = (1 - scale)[:, None] * (2 * torch.rand(count, 2, device=device) - 1)
    angle = ANGLE * (2 * torch.rand(count, device=device) - 1)
    flip = 1 - 2 * (torch.rand(count, device=device) < 0.5).float()
    aspect = source.shape[-1] / source.shape[-2]  # grids count in halves of each side
    cos, sin = scale * angle.cos(), scale * angle.sin()
    rows = [
        torch.stack([flip * cos, -sin / aspect, shift[:, 0]], dim=1),
        torch.stack([flip * sin * aspect, cos, shift[:, 1]], dim=1),
    ]
    theta = torch.stack(rows, dim=1)  # (B, 2, 3)
    both = torch.cat([source, target], dim=1)
    grid = F.affine_grid(theta, list(both.shape), align_corners=False).to(both.dtype)
    seen = F.grid_sample(both, grid, padding_mode="reflection", align_corners=False)
    return seen[:, :3], seen[:, 3:]


def drop_tokens(tokens: Tensor, share: float) -> Tensor | None:
    """Which tokens stay visible when each is dropped with the chance ``share``.

    Returns:
        Shape: (B, P), bool; ``None`` if all do.
    """
    if share <= 0:
        return None
    return torch.rand(tokens.shape[:2], device=tokens.device) >= share
