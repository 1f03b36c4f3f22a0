"""How one cell's mass and place change between two snapshots at the least action, learned once.

For an atom that goes from (x0, m0) to (x1, m1) the action is the integral of
m (|x'|^2 / 2 + psi(m' / m)) over t in 0..1. It depends on d = |x1 - x0| and r = log(m1 / m0) only,
and is m0 h(d, r). With l(t) = log(m(t) / m0) fixed, momentum m x' is constant whatever psi, so the
best place is x0 + s(t) (x1 - x0) with s(t) = I(t) / I(1), I(t) the integral of exp(-l) up to t, and

    h(d, r) = min over l of  d^2 / (2 I(1)) + integral of exp(l) psi(l').

So one scalar curve is learned, whatever the dimension of the data. On a grid of knots with l linear
between them both integrals have a closed form; since that l is itself a possible curve, h of any
network is an upper bound of the true cost, and lower is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

KNOTS = 20  # pieces of the quadrature
WIDTH = 48


def wfr_cost(d: Tensor, r: Tensor, delta: float) -> Tensor:
    """h(d, r) of the quadratic penalty in closed form: 2 delta^2 (1 + e^r - 2 e^(r/2) cos).

    It is the squared chord on the cone of the angle d / (2 delta) (Chizat et al. 2018).

    Args:
        d: Distance, at most 2 pi delta. Shape: any.
        r: Logarithm of the ratio of masses, of the same shape.
        delta: Length scale of the penalty.
    """
    return 2 * delta**2 * (1 + r.exp() - 2 * (r / 2).exp() * torch.cos(d / (2 * delta)))


def chebyshev_knots(pieces: int = KNOTS) -> Tensor:
    """Times from 0 to 1, closer together at both ends, in float64. Shape: (pieces + 1,)."""
    return (1 - torch.cos(math.pi * torch.arange(pieces + 1, dtype=torch.float64) / pieces)) / 2


def mean_exp(a: Tensor, b: Tensor) -> Tensor:
    """Mean of exp over the segment from a to b: exp((a + b) / 2) sinh(x) / x, x = (b - a) / 2."""
    x = (b - a) / 2
    small = x.abs() < 1e-2
    safe = torch.where(small, 1.0, x)
    square = x.square()
    series = 1 + square / 6 + square.square() / 120
    return ((a + b) / 2).exp() * torch.where(small, series, safe.sinh() / safe)


def path_cost(
    log_mass: Tensor, d: Tensor, penalty: Callable[[Tensor], Tensor], knots: Tensor
) -> tuple[Tensor, Tensor]:
    """Transport and growth part of the action of a curve that is linear between the knots.

    Args:
        log_mass: l at the knots, 0 at the first. Shape: (..., K + 1).
        d: Distance. Shape: (...).
        penalty: psi.
        knots: Times. Shape: (K + 1,).

    Returns:
        d^2 / (2 I(1)), and the growth of each piece. Shapes: (...) and (..., K).
    """
    width = knots.diff()
    start, end = log_mass[..., :-1], log_mass[..., 1:]
    inverse = (width * mean_exp(-start, -end)).sum(dim=-1)
    growth = width * mean_exp(start, end) * penalty((end - start) / width)
    return d.square() / (2 * inverse), growth


@dataclass(frozen=True)
class PathPoint:
    """Where an atom is at a time t, and how it moves; time runs from 0 to 1.

    Attributes:
        log_mass: l(t). Shape: (B,), as all.
        rate: l'(t).
        place: s(t), from 0 at x0 to 1 at x1.
        speed: s'(t).
    """

    log_mass: Tensor
    rate: Tensor
    place: Tensor
    speed: Tensor


class PathNet(nn.Module):
    """l(t) as a function of t, d and r, with the boundary values built in.

    m(t) / m0 = [(1 - t)^2 + e^r t^2 + 2 t (1 - t) e^(r/2) c(d, r)] exp(3 t (1 - t) n(t, d, r)). The
    bracket with c = cos(d / (2 delta)) and n = 0 is the geodesic of the quadratic penalty, so that
    case is in the family.

    Args:
        max_distance: D, distances are scaled by it.
        max_log_ratio: R, logarithms of ratios of masses are scaled by it.
    """

    knots: Tensor

    def __init__(self, max_distance: float, max_log_ratio: float) -> None:
        super().__init__()
        self.max_distance, self.max_log_ratio = max_distance, max_log_ratio
        self.angle = _mlp(2)  # c = 2 sigmoid
        self.bend = _mlp(3)  # n
        self.register_buffer("knots", chebyshev_knots().float(), persistent=False)

    def forward(self, t: Tensor, d: Tensor, r: Tensor) -> Tensor:
        """l(t).

        Args:
            t: Times in 0..1. Shape: (B, T).
            d: Distances. Shape: (B,).
            r: Logarithms of ratios of masses. Shape: (B,).

        Returns:
            log(m(t) / m0). Shape: (B, T).
        """
        scaled = self._scaled(d, r)
        c = 2 * torch.sigmoid(self.angle(scaled))  # (B, 1)
        wide = scaled[:, None].expand(*t.shape, 2)
        n = self.bend(torch.cat([2 * t[..., None] - 1, wide], dim=-1))[..., 0]
        half = (r[:, None] / 2).exp()
        bracket = (1 - t).square() + (half * t).square() + 2 * t * (1 - t) * half * c
        log_mass: Tensor = bracket.log() + 3 * t * (1 - t) * n
        return log_mass

    def cost(self, d: Tensor, r: Tensor, penalty: Callable[[Tensor], Tensor]) -> Tensor:
        """h(d, r), from above. Shape: (B,)."""
        transport, growth = path_cost(self._at_knots(d, r), d, penalty, self.knots)
        return transport + growth.sum(dim=-1)

    def point(self, t: Tensor, d: Tensor, r: Tensor) -> PathPoint:
        """The path at one time for each pair; its mass and rate are exact, not interpolated.

        Args:
            t: In 0..1. Shape: (B,).
            d: Distances. Shape: (B,).
            r: Logarithms of ratios of masses. Shape: (B,).
        """
        at = self._at_knots(d, r)
        log_mass, rate = self._value_and_rate(t, d, r)
        start, end, width = at[:, :-1], at[:, 1:], self.knots.diff()
        done = torch.nn.functional.pad((width * mean_exp(-start, -end)).cumsum(dim=-1), (1, 0))
        piece = torch.searchsorted(self.knots, t.contiguous(), right=True) - 1
        piece = piece.clamp(0, len(width) - 1)[:, None]
        before = t - self.knots[piece[:, 0]]
        left = at.gather(1, piece)[:, 0]
        here = torch.lerp(left, at.gather(1, piece + 1)[:, 0], before / width[piece[:, 0]])
        reached = done.gather(1, piece)[:, 0] + before * mean_exp(-left, -here)
        return PathPoint(log_mass, rate, reached / done[:, -1], (-log_mass).exp() / done[:, -1])

    def _value_and_rate(self, t: Tensor, d: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """l(t) and its derivative in t, which is carried through the network along with the value.

        So it also works in inference mode, where there is no autograd.
        """
        scaled = self._scaled(d, r)
        c = 2 * torch.sigmoid(self.angle(scaled))[:, 0]
        value = torch.cat([2 * t[:, None] - 1, scaled], dim=-1)
        tangent = torch.zeros_like(value)
        tangent[:, 0] = 2
        for layer in self.bend:
            value = layer(value)
            if isinstance(layer, nn.Linear):
                tangent = tangent @ layer.weight.T
            else:  # tanh
                tangent = (1 - value.square()) * tangent
        n, n_rate = value[:, 0], tangent[:, 0]
        half = (r / 2).exp()
        bracket = (1 - t).square() + (half * t).square() + 2 * t * (1 - t) * half * c
        slope = -2 * (1 - t) + 2 * half.square() * t + 2 * (1 - 2 * t) * half * c
        log_mass = bracket.log() + 3 * t * (1 - t) * n
        return log_mass, slope / bracket + 3 * (1 - 2 * t) * n + 3 * t * (1 - t) * n_rate

    def _scaled(self, d: Tensor, r: Tensor) -> Tensor:
        return torch.stack([2 * d / self.max_distance - 1, r / self.max_log_ratio], dim=-1)

    def _at_knots(self, d: Tensor, r: Tensor) -> Tensor:
        log_mass: Tensor = self(self.knots.to(d).expand(len(d), -1), d, r)
        return log_mass


def _mlp(inputs: int) -> nn.Sequential:
    """Two hidden layers of tanh; the output starts at 0."""
    last = nn.Linear(WIDTH, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(
        nn.Linear(inputs, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), last
    )
