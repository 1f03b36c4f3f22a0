"""Velocity and growth as functions of time and place, and the ODE that moves weighted cells."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

STEPS = 50  # of RK4 in one interval between snapshots

Field = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class FlowFields(nn.Module):
    """Two networks of tanh layers: velocity, and growth with about half as many layers.

    Inputs and outputs are scaled: time to -1..1, places to unit variance.

    Args:
        dim: p, of the data.
        hidden: Width of all layers. Real scale: 256.
        layers: Hidden layers of the velocity. Real scale: 5.
    """

    def __init__(self, dim: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.velocity = _mlp(1 + dim, dim, hidden, layers)
        self.growth = _mlp(1 + dim, 1, hidden, (layers + 1) // 2)

    def forward(self, tau: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Velocity and growth.

        Args:
            tau: Scaled time. Shape: (B,).
            x: Scaled places. Shape: (B, p).

        Returns:
            Shapes: (B, p) and (B,).
        """
        inputs = torch.cat([tau[:, None], x], dim=1)
        return self.velocity(inputs), self.growth(inputs)[:, 0]


def _mlp(inputs: int, outputs: int, hidden: int, layers: int) -> nn.Sequential:
    sizes = [inputs, *[hidden] * layers]
    inner = [module for a, b in pairwise(sizes) for module in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*inner, nn.Linear(hidden, outputs))


def integrate(
    field: Field, x: Tensor, start: Tensor, times: Tensor, interval: float
) -> tuple[Tensor, Tensor]:
    """Moves cells along x' = v and (log w)' = g with fixed steps of the classical RK4.

    Args:
        field: (t, x) to (v, g), for a batch of times and places.
        x: Places at ``start``. Shape: (B, p).
        start: Time of each cell; before it a cell rests where it is, with weight 1. Shape: (B,).
        times: When to look, in order. Shape: (T,).
        interval: Time that takes 50 steps.

    Returns:
        Places and logarithms of weights. Shapes: (T, B, p) and (T, B).
    """
    log_w = torch.zeros_like(start)
    places, weights = [], []
    before = torch.minimum(start.min(), times[0])
    for now in times:
        count = max(1, math.ceil(STEPS * float(now - before) / interval - 1e-6))
        t = torch.maximum(start, before)
        h = (torch.maximum(start, now) - t) / count  # 0 for a cell that has not begun
        for _ in range(count):
            x, log_w = _rk4(field, t, x, log_w, h)
            t = t + h
        places.append(x)
        weights.append(log_w)
        before = now
    return torch.stack(places), torch.stack(weights)


def _rk4(field: Field, t: Tensor, x: Tensor, log_w: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    wide = h[:, None]
    v1, g1 = field(t, x)
    v2, g2 = field(t + h / 2, x + wide / 2 * v1)
    v3, g3 = field(t + h / 2, x + wide / 2 * v2)
    v4, g4 = field(t + h, x + wide * v3)
    return x + wide / 6 * (v1 + 2 * v2 + 2 * v3 + v4), log_w + h / 6 * (g1 + 2 * g2 + 2 * g3 + g4)
