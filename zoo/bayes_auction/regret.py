"""Regrets of average play: external, semicoarse and swap, from what bids would have gained."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, vstack
from torch import Tensor

from zoo.solvers import LinearProgram, solve_highs

Array = NDArray[np.float64]


def external_regret(swaps: Tensor, prior: Tensor) -> Tensor:
    """Gain from one bid always, mean over types, largest of the bidders.

    Args:
        swaps: M. Shape: (G, N, n, m, m).
        prior: Shape: (G, N, n).

    Returns:
        Shape: (G,).
    """
    best = swaps.sum(-2).amax(-1).clamp_min(0)
    return (prior.to(best) * best).sum(-1).amax(-1)


def swap_regret(swaps: Tensor, prior: Tensor) -> Tensor:
    """Gain from the best map of bids; see :func:`external_regret`. Shape: (G,)."""
    best = swaps.amax(-1).clamp_min(0).sum(-1)
    return (prior.to(best) * best).sum(-1).amax(-1)


def semicoarse_regret(swaps: Tensor, prior: Tensor, mask: Tensor) -> Array:
    """Gain from the best flow of a gradient field; between the other two. Shape: (G,).

    Args:
        swaps: M. Shape: (G, N, n, m, m).
        prior: Shape: (G, N, n).
        mask: Shape: (G, n, m).
    """
    m, p, allowed = (x.cpu().numpy() for x in (swaps.double(), prior.double(), mask))
    found = np.zeros(p.shape)
    for g, k, i in np.argwhere(p > 0):
        chosen = allowed[g, i]
        found[g, k, i] = best_flow(m[g, k, i][np.ix_(chosen, chosen)])
    regret: Array = (found * p).sum(axis=2).max(axis=1)
    return regret


def best_flow(gain: Array) -> float:
    """Max <P, M> over row-stochastic P with P(a, d) - P(d, a) = g_d - g_a for some g.

    Args:
        gain: M, zero on its diagonal. Shape: (m, m).
    """
    m = len(gain)
    if m < 2 or gain.max() <= 0:
        return 0.0
    # Variables: P off the diagonal, then g; what a row lacks to 1 is on the diagonal.
    a, d = np.nonzero(~np.eye(m, dtype=bool))
    number = np.full((m, m), -1)
    number[a, d] = np.arange(len(a))
    low, high = np.nonzero(np.triu(np.ones((m, m), dtype=bool), 1))
    row = np.arange(len(low))
    size = len(a) + m
    fields = coo_array(
        (
            np.repeat([1.0, -1.0, -1.0, 1.0], len(low)),
            (
                np.tile(row, 4),
                np.concatenate([number[low, high], number[high, low], len(a) + high, len(a) + low]),
            ),
        ),
        shape=(len(low), size),
    )
    sums = coo_array((-np.ones(len(a)), (a, np.arange(len(a)))), shape=(m, size))
    program = LinearProgram(
        np.r_[-gain[a, d], np.zeros(m)],
        csr_array(vstack([fields, sums])),
        np.r_[np.zeros(len(low)), -np.ones(m)],
        np.r_[np.zeros(len(a)), -np.ones(m)],
        np.r_[np.ones(len(a)), np.ones(m)],
        np.r_[np.ones(len(low), bool), np.zeros(m, bool)],
    )
    return max(0.0, -solve_highs(program, "The regret").value)
