"""Chooses temperature and regularisation by how many validation queries are recovered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from zoo.layers.sinkhorn import sinkhorn_divergence
from zoo.sinkhorn_memory.flow import Dynamics, Patterns, shk_retrieve

# S is in units of the standardised cost, so beta is in its inverse. The prototype's 5 to 50 were
# in the data's unit, which at the default's scale of 1.8 is 16 to 160 in this one.
BETAS = (20.0, 50.0, 100.0, 200.0)
EPS_SHARES = (0.02, 0.05, 0.1, 0.2)  # of the median cost between points of the memory
RECOVERED = 0.05  # of the divergence at the start, below which a query counts as cleaned
SAMPLE = 1000  # points that the median is taken over


class Queries(NamedTuple):
    """Validation queries in standardised coordinates.

    Attributes:
        points: Shape: (Q, n, d).
        weights: Shape: (Q, n).
        target: Index of the stored measure that each comes from. Shape: (Q,).
    """

    points: Tensor
    weights: Tensor
    target: Tensor


def median_cost(points: Tensor, weights: Tensor) -> float:
    """Median of |x - y|^2 / 2 over the stored points, of which at most 1000 are looked at."""
    real = points[weights > 0]
    chosen = real[torch.linspace(0, len(real) - 1, min(SAMPLE, len(real))).long()]
    return float(torch.pdist(chosen).square().median()) / 2 if len(chosen) > 1 else 1.0


def recovered(
    points: Tensor,
    weights: Tensor,
    start: Tensor,
    prob: Tensor,
    patterns: Patterns,
    target: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Divergence of retrieved measures from their targets, and whether they count as recovered.

    Args:
        points: Retrieved. Shape: (Q, n, d).
        weights: Shape: (Q, n).
        start: Divergence of the queries from their targets. Shape: (Q,).
        prob: Of the patterns. Shape: (Q, K).
        patterns: K of them.
        target: Indices. Shape: (Q,).
        eps: Of the divergence.

    Returns:
        Shapes: (Q,) and (Q,), bool.
    """
    y, b = patterns.points[target], patterns.weights[target]
    end = sinkhorn_divergence(points, weights, y, b, eps).clamp_min(0)
    return end, (prob.argmax(-1) == target) & (end <= RECOVERED * start)


@torch.no_grad()
def count_recovered(
    queries: Sequence[Queries], points: Tensor, weights: Tensor, grid: Sequence[Dynamics]
) -> Tensor:
    """For each of the dynamics: recovered queries, minus their mean S_end / S_0 to break ties.

    Args:
        queries: Batches.
        points: Stored. Shape: (K, m, d).
        weights: Shape: (K, m).
        grid: G of them.

    Returns:
        Sums over the queries. Shape: (G, 2): recovered, and S_end / S_0 up to 1.
    """
    counts = points.new_zeros(len(grid), 2)
    for number, dynamics in enumerate(grid):
        eps = dynamics.eps
        patterns = Patterns.prepare(points, weights, eps, dynamics.inner_iters)
        for x, a, target in queries:
            found = shk_retrieve(x, a, patterns, dynamics)
            y, b = points[target], weights[target]
            start = sinkhorn_divergence(x, a, y, b, eps).clamp_min(1e-12)
            end, good = recovered(
                found.points, found.weights, start, found.pattern_prob, patterns, target, eps
            )
            counts[number, 0] += good.sum()
            counts[number, 1] += (end / start).clamp(max=1).sum()
    return counts


def make_grid(dynamics: Dynamics, cost: float) -> list[Dynamics]:
    """All pairs of beta and eps, around given other constants."""
    return [
        replace(dynamics, beta=beta, eps=share * cost) for beta, share in product(BETAS, EPS_SHARES)
    ]


def choose(counts: Tensor, grid: Sequence[Dynamics]) -> Dynamics:
    """The dynamics that recover most queries; of equal ones, those that end nearest."""
    order = [(float(c[0]), -float(c[1])) for c in counts]
    return grid[max(range(len(grid)), key=order.__getitem__)]
