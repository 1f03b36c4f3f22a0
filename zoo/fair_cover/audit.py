"""Policies, that is random choices as a mixture to deploy, and whether their promises are kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from zoo.cover_files import CoverInstance
from zoo.fair_cover.program import Bools, Floats

LEVEL = 0.99  # of the confidence bounds


@dataclass(frozen=True)
class Policy:
    """Equally likely choices, each with a threshold of its own.

    Attributes:
        chosen: Shape: (K, M).
        theta: Thresholds. Shape: (K,).
        cost: Of each choice. Shape: (K,).
    """

    chosen: Bools
    theta: Floats
    cost: Floats

    @property
    def mean_cost(self) -> float:
        """Expected cost."""
        return float(self.cost.mean())


@dataclass(frozen=True)
class Audit:
    """How often each element was covered, against what it was promised.

    Attributes:
        coverage: Share of the draws that cover each element. Shape: (n,).
        upper: Upper ends of one-sided exact intervals that hold for all elements together, with 99
            % confidence (Clopper and Pearson, with Bonferroni's correction). Shape: (n,).
        worst_individual_gap: Largest p_j less the share; above 0 by chance alone, if it is.
        broken: Elements whose promise the draws refute: upper end below p_j.
        groups_met: Share of the draws in which every group's need is met: must be 1.
        draws: K.
    """

    coverage: Floats
    upper: Floats
    worst_individual_gap: float
    broken: list[int]
    groups_met: float
    draws: int


def audit(instance: CoverInstance, policy: Policy) -> Audit:
    """Counts a policy's coverage.

    Args:
        instance: The instance.
        policy: Draws of :meth:`FairCover.policy`, or anyone's.
    """
    covered = (instance.membership @ policy.chosen.T.astype(np.int32)).T > 0  # (K, n)
    draws, n = covered.shape
    hits = covered.sum(axis=0)
    alpha = (1 - LEVEL) / max(1, n)
    upper = np.where(hits == draws, 1.0, beta.ppf(1 - alpha, hits + 1, np.maximum(draws - hits, 1)))
    met = instance.need <= (instance.groups @ covered.T.astype(np.int64)).T
    gap = instance.promise - hits / draws
    return Audit(
        hits / draws,
        upper,
        float(gap.max()),
        np.flatnonzero(upper < instance.promise).tolist(),
        float(met.all(axis=1).mean()),
        draws,
    )
