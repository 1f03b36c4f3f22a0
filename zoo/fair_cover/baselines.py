"""What a planner would use instead: greedy choice, integer programming, and an older rounding.

All of them get the same hard elements as the method, so they keep the same promises.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from zoo.cover_files import CoverInstance
from zoo.errors import ZooError
from zoo.fair_cover.program import Bools, Relaxation, Residual, cover_program
from zoo.fair_cover.rounding import Counter, complete, prune_choices

BASELINES = ("greedy", "iv", "iv_prune", "ilp")


def greedy(instance: CoverInstance, hard: Bools) -> Bools:
    """The most need met per unit of cost, again and again; then pruned. Shape: (M,)."""
    counter = Counter(instance, hard)
    chosen = complete(counter, np.zeros(len(instance.cost), dtype=bool))
    pruned: Bools = prune_choices(counter, chosen[None])[0]
    return pruned


def ilp(instance: CoverInstance, hard: Bools, seconds: float = 10.0) -> Bools | None:
    """The best that HiGHS's branch and bound finds in time; ``None`` if it finds none.

    Args:
        instance: The instance.
        hard: Elements to be covered. Shape: (n,).
        seconds: Limit.
    """
    reduced = cover_program(Residual.whole(instance, hard.astype(np.float64)))
    program = reduced.program
    # Covered members are whole once sets are: z may stay continuous but for its box.
    whole = np.r_[np.ones(len(reduced.sets)), np.zeros(len(reduced.elements))]
    found = milp(
        program.cost,
        constraints=LinearConstraint(program.rows, program.least, np.inf),
        bounds=Bounds(program.lower, program.upper),
        integrality=whole,
        options={"time_limit": seconds},
    )
    if found.x is None:
        return None
    chosen = np.zeros(len(instance.cost), dtype=bool)
    chosen[reduced.sets[found.x[: len(reduced.sets)] > 0.5]] = True
    if not Counter(instance, hard).feasible(chosen[None])[0]:  # within HiGHS's tolerances only
        chosen = complete(Counter(instance, hard), chosen)
    return chosen


def inamdar_varadarajan(
    instance: CoverInstance, hard: Bools, relaxation: Relaxation, rng: np.random.Generator
) -> Bools:
    """OUR RECONSTRUCTION of rounding by T. Inamdar and K. Varadarajan, arXiv 1809.06506.

    Only its abstract could be read, O(beta + log r) for r groups. Elements that the relaxation
    covers by half or more, and the hard ones, are covered by sampling at twice the shares,
    ceil(ln n) + 1 times, and the cheapest set for whoever is left. Then ceil(ln(l + 1)) samples at
    six times the shares are added at a time until all groups are met.

    Args:
        instance: The instance.
        hard: Shape: (n,).
        relaxation: With z = 1 on the hard elements.
        rng: Of the samples.

    Returns:
        Not pruned. Shape: (M,).
    """
    counter = Counter(instance, hard)
    x = relaxation.x
    covered = (instance.membership @ x).clip(0, 1)
    heavy = (covered >= 0.5) | hard
    chosen = np.zeros(len(x), dtype=bool)
    n, groups = instance.membership.shape[0], max(1, instance.groups.shape[0])
    for _ in range(math.ceil(math.log(max(2, n))) + 1):
        chosen |= rng.random(len(x)) < np.minimum(1, 2 * x)
    left = np.flatnonzero(heavy & (counter.counts(chosen[None])[0] == 0))
    for element in left:
        start, end = instance.membership.indptr[element : element + 2]
        sets = instance.membership.indices[start:end]
        if not chosen[sets].any():
            chosen[sets[instance.cost[sets].argmin()]] = True
    for _ in range(1000):
        if counter.feasible(chosen[None])[0]:
            return chosen
        for _ in range(math.ceil(math.log(groups + 1))):
            chosen |= rng.random(len(x)) < np.minimum(1, 6 * x)
    return complete(counter, chosen)


def solve_baseline(
    name: str,
    instance: CoverInstance,
    hard: Bools,
    relaxation: Relaxation,
    rng: np.random.Generator,
    seconds: float = 10.0,
) -> Bools | None:
    """A baseline's choice by its name in :data:`BASELINES`; ``None`` if it found none in time."""
    counter = Counter(instance, hard)

    def older() -> Bools:
        return inamdar_varadarajan(instance, hard, relaxation, rng)

    solvers: dict[str, Callable[[], Bools | None]] = {
        "greedy": lambda: greedy(instance, hard),
        "iv": older,
        "iv_prune": lambda: prune_choices(counter, older()[None])[0],
        "ilp": lambda: ilp(instance, hard, seconds),
    }
    if name not in solvers:
        raise ZooError(f"The baseline '{name}' is unknown: expected {', '.join(solvers)}.")
    return solvers[name]()
