"""Randomised iterated rounding, with promises to single elements kept by a common threshold.

1. One threshold theta, uniform in (0, 1], makes the elements with p_j >= theta the hard set D. So
   the chance that j is in D is p_j exactly, and since every realisation covers D, the promises hold
   whatever follows. Choosing the cheapest of several trials is safe as long as they share theta:
   over different ones it would favour large thresholds, that is few promises.
2. The relaxation with z = 1 on D is solved; its value is the bound that cost is compared with.
3. In each round a set is taken with chance min(1, tau x_S), always if x_S is 1. What is covered is
   removed, and the relaxation of the rest is solved again, until all needs are met. After
   ln(n l) / tau + 2 rounds greedy choice completes what is left.
4. Sets that turn out not to be needed, for D and the groups, are deleted again.

All trials are rounded and pruned at once; nothing loops over elements. Source: the abstract; the
scheme of sampling, contracting and solving again is that of J. Byrka et al. (J. ACM 2013).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from zoo.cover_files import CoverInstance
from zoo.fair_cover.program import Bools, Floats, Ints, Relaxation, Residual, relax

SURE = 1 - 1e-6  # a share from which a set is taken without a draw


@dataclass(frozen=True)
class Drawn:
    """Choices of one threshold.

    Attributes:
        chosen: Of each trial. Shape: (T, M).
        rounds: Of sampling, of each trial. Shape: (T,).
        completed: Trials that greedy choice had to complete. Shape: (T,).
        programs: Linear programs that were solved.
    """

    chosen: Bools
    rounds: Ints
    completed: Bools
    programs: int


class Counter:
    """Counts of an instance's cover for many choices at once.

    Args:
        instance: The instance.
        hard: Elements that every choice must cover. Shape: (n,).
    """

    def __init__(self, instance: CoverInstance, hard: Bools) -> None:
        self.instance, self.hard = instance, hard
        self.member = instance.membership.astype(np.int32)
        self.by_set = csc_array(instance.membership)
        self.groups = instance.groups.astype(np.int32)

    def counts(self, chosen: Bools) -> NDArray[np.int32]:
        """How many chosen sets hold each element. Shape: (T, M) to (T, n)."""
        found: NDArray[np.int32] = (self.member @ chosen.T.astype(np.int32)).T
        return found

    def slack(self, counts: NDArray[np.int32]) -> Ints:
        """Covered members of each group beyond its need. Shape: (T, n) to (T, l)."""
        covered = self.groups @ (counts > 0).T.astype(np.int32)
        found: Ints = covered.T.astype(np.int64) - self.instance.need
        return found

    def feasible(self, chosen: Bools) -> Bools:
        """Whether each choice covers the hard elements and meets every need. Shape: (T,)."""
        counts = self.counts(chosen)
        hard = (counts[:, self.hard] > 0).all(axis=1)
        met = (self.slack(counts) >= 0).all(axis=1)
        return np.asarray(hard & met)

    def residual(self, chosen: Bools) -> Residual:
        """What one choice leaves to be done. Shape: (M,)."""
        counts = self.counts(chosen[None])
        return Residual(
            self.instance,
            counts[0] == 0,
            self.hard.astype(np.float64),
            -self.slack(counts)[0],
            ~chosen,
        )


def hard_elements(instance: CoverInstance, theta: float) -> Bools:
    """D, which holds element j with chance p_j over theta uniform in (0, 1]. Shape: (n,)."""
    found: Bools = instance.promise >= theta
    return found


def round_limit(instance: CoverInstance, tau: float) -> int:
    """Rounds after which an element is left uncovered with chance 1 / (n l) at most."""
    n, groups = instance.membership.shape[0], max(1, instance.groups.shape[0])
    return math.ceil(math.log(max(2, n * groups)) / tau) + 2


def draw(
    instance: CoverInstance,
    hard: Bools,
    relaxation: Relaxation,
    seeds: list[np.random.SeedSequence],
    tau: float = 1.0,
    resolve: str = "lp",
    backend: str = "auto",
    knapsack: bool = False,
    dependent: bool = False,
    limit: int | None = None,
    prune: bool = True,
) -> Drawn:
    """Rounds one relaxation once for each seed.

    Args:
        instance: The instance.
        hard: D. Shape: (n,).
        relaxation: Of the instance with z = 1 on D, or what stands in its place.
        seeds: Of each trial, so that a trial does not depend on which others there are.
        tau: Factor of the shares.
        resolve: "lp" solves the relaxation of the rest after each round, "none" goes on with the
            first one.
        backend: Of these programs.
        knapsack: Strengthen them, see :func:`~zoo.fair_cover.program.relax`.
        dependent: Round by pairs, which keeps the sum of the shares, rather than set by set.
        limit: Rounds at most; ``None`` for :func:`round_limit`.
        prune: Delete sets that are not needed.
    """
    counter = Counter(instance, hard)
    generators = [np.random.default_rng(seed) for seed in seeds]
    trials = len(generators)
    chosen = np.zeros((trials, len(instance.cost)), dtype=bool)
    shares = np.repeat(relaxation.x[None], trials, axis=0)
    rounds = np.zeros(trials, dtype=np.int64)
    open_ = ~counter.feasible(chosen)
    programs = 0
    for number in range(limit or round_limit(instance, tau)):
        active = np.flatnonzero(open_)
        if not len(active):
            break
        if number and resolve == "lp":
            lefts = [counter.residual(chosen[t]) for t in active]
            for trial, found in zip(active, relax(lefts, backend, knapsack), strict=True):
                shares[trial] = found.x
            programs += len(active)
        chance = np.minimum(1, tau * shares[active])
        pick = _round_by_pairs if dependent else _round_by_sets
        picked = pick(chance, [generators[t] for t in active])
        chosen[active] |= picked | (shares[active] >= SURE)
        rounds[active] += 1
        open_[active] = ~counter.feasible(chosen[active])
    completed = open_.copy()
    for trial in np.flatnonzero(open_):
        chosen[trial] = complete(counter, chosen[trial])
    if prune:
        chosen = prune_choices(counter, chosen)
    return Drawn(chosen, rounds, completed, programs)


def _round_by_sets(chance: Floats, generators: list[np.random.Generator]) -> Bools:
    """Each set for itself. Shape: (T, M) to the same."""
    draws = np.stack([g.random(chance.shape[1]) for g in generators])
    found: Bools = draws < chance
    return found


def _round_by_pairs(chance: Floats, generators: list[np.random.Generator]) -> Bools:
    """Pipage rounding: two shares move against each other until one is 0 or 1.

    Marginals and the sum (to its two nearest integers) are kept, and draws are negatively
    correlated. All trials step at once. A. Srinivasan, FOCS 2001.
    """
    shares = chance.copy()
    rows = np.arange(len(shares))
    held, value = np.full(len(shares), -1), np.zeros(len(shares))  # the share that is still open
    draws = np.stack([g.random(chance.shape[1]) for g in generators])
    for column in range(shares.shape[1]):
        x = shares[:, column]
        whole = (x <= 1e-9) | (x >= 1 - 1e-9)
        start = ~whole & (held < 0)
        pair = ~whole & (held >= 0)
        up = np.minimum(1 - value, x)  # what the held one may gain from this one
        down = np.minimum(value, 1 - x)
        gain = draws[:, column] < down / np.maximum(up + down, 1e-12)
        moved = np.where(gain, up, -down)
        a, b = value + moved, x - moved
        done_a = (a <= 1e-9) | (a >= 1 - 1e-9)
        fixed = pair & done_a
        shares[rows[pair], held[pair]] = a[pair]
        shares[pair, column] = b[pair]
        # The one that is still open is held on.
        open_b = ~((b <= 1e-9) | (b >= 1 - 1e-9))
        value = np.where(
            start, x, np.where(fixed, np.where(open_b, b, 0), np.where(pair, a, value))
        )
        held = np.where(start, column, np.where(fixed, np.where(open_b, column, -1), held))
    last = np.stack([g.random() for g in generators])  # at most one share is left
    open_ = held >= 0
    shares[rows[open_], held[open_]] = last[open_] < value[open_]
    found: Bools = shares > 0.5
    return found


def complete(counter: Counter, chosen: Bools) -> Bools:
    """Adds sets greedily until all is met: the most need met per unit of cost.

    An uncovered member counts 1 / k_c in each group c that still needs k_c, and 1 if it is hard.

    Args:
        counter: Of the instance.
        chosen: Shape: (M,).
    """
    instance, chosen = counter.instance, chosen.copy()
    counts = counter.counts(chosen[None])[0]
    groups = instance.groups.T.tocsr().astype(np.float64)
    sets = instance.membership.T.tocsr().astype(np.float64)
    while True:
        need = -counter.slack(counts[None])[0]
        share = np.where(need > 0, 1 / np.maximum(need, 1), 0.0)
        worth = (groups @ share + counter.hard) * (counts == 0)
        if not worth.any():
            return chosen
        score = (sets @ worth) / instance.cost
        score[chosen] = 0
        best = int(score.argmax())
        chosen[best] = True
        start, end = counter.by_set.indptr[best : best + 2]
        counts[counter.by_set.indices[start:end]] += 1


def prune_choices(counter: Counter, chosen: Bools) -> Bools:
    """Deletes sets that neither a hard element nor a group's need depends on.

    Sets are visited from the dearest per element on; a choice that was feasible stays so.

    Args:
        counter: Of the instance.
        chosen: Feasible choices. Shape: (T, M).
    """
    instance, chosen = counter.instance, chosen.copy()
    counts = counter.counts(chosen)
    slack = counter.slack(counts)
    sizes = np.maximum(1, np.diff(counter.by_set.indptr))
    members = csc_array(counter.groups)
    for number in np.argsort(-instance.cost / sizes, kind="stable"):
        trials = np.flatnonzero(chosen[:, number])
        if not len(trials):
            continue
        start, end = counter.by_set.indptr[number : number + 2]
        elements = counter.by_set.indices[start:end]
        once = counts[np.ix_(trials, elements)] == 1
        lost = once.astype(np.int32) @ members[:, elements].T.toarray()
        free = ~(once & counter.hard[elements]).any(axis=1) & (lost <= slack[trials]).all(axis=1)
        gone = trials[free]
        chosen[gone, number] = False
        counts[np.ix_(gone, elements)] -= 1
        slack[gone] -= lost[free]
    return chosen


def covered_counts(instance: CoverInstance, chosen: Bools) -> tuple[Bools, Ints]:
    """Which elements a choice covers, (n,), and how many members of each group, (l,)."""
    covered = (instance.membership @ chosen.astype(np.int32)) > 0
    counts: Ints = (csr_array(instance.groups) @ covered.astype(np.int64)).astype(np.int64)
    return covered, counts
