"""Paired statistics of a benchmark in which every task meets every condition.

The unit is the task: trials of one task are no independent evidence about others (section on
statistics of arXiv 2602.12670). Lifts are in points, hundredths of a pass rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.stats import false_discovery_control, fisher_exact

from zoo.agents import metrics
from zoo.errors import ZooError

Array: TypeAlias = "np.ndarray"

RESAMPLES = 10_000
FDR = 0.1  # of the regressions that are called significant
EXACT = 12  # pairs up to which all signs are tried
DRAWS = 20_000  # of signs beyond


@dataclass(frozen=True)
class Lift:
    """What a condition does to the pass rate.

    Attributes:
        value: Mean over tasks of the paired difference, in points.
        low: Of the 95 % interval, by the bootstrap over tasks within domains.
        high: Likewise.
        before: Pass rate without, 0..1.
        after: Pass rate with.
        p: McNemar's exact p of majority outcomes of tasks.
        gain: Of what was left to gain, the share that is gained.
    """

    value: float
    low: float
    high: float
    before: float
    after: float
    p: float
    gain: float


def rates(outcomes: Array) -> Array:
    """Pass rates of tasks: the mean over agents of the mean over their trials.

    Args:
        outcomes: 1, 0, or NaN for a trial that is left out. Shape: (T, A, S).

    Returns:
        NaN where nothing is known. Shape: (T,).
    """
    return nan_mean(nan_mean(outcomes, 2), 1)


def nan_mean(values: Array, axis: int) -> Array:
    """Mean of what is no NaN; NaN where there is nothing, without a warning."""
    there = ~np.isnan(values)
    count = there.sum(axis)
    total = np.where(there, values, 0).sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def paired_lift(before: Array, after: Array, domain: Array, seed: int = 0) -> Lift:
    """The lift between two conditions on the same trials.

    Args:
        before: Outcomes without, NaN for what is left out. Shape: (T, A, S).
        after: Outcomes with, likewise.
        domain: Of each task, integers. Shape: (T,).
        seed: Of the bootstrap.

    Raises:
        ZooError: If one condition left out a trial that the other did not, or nothing is left.
    """
    if (np.isnan(before) != np.isnan(after)).any():
        raise ZooError("The two conditions left out different trials: leave pairs out.")
    p0, p1 = rates(before), rates(after)
    there = ~np.isnan(p0)
    if not there.any():
        raise ZooError("There is no task with trials under both conditions.")
    b, a = p0[there], p1[there]
    # The functions, not the metrics: those sync with other processes, which may not be here.
    found = metrics.paired_lift(b, a, domain[there], RESAMPLES, seed=seed)
    value, low, high = (100 * found[name] for name in ("lift", "lift_low", "lift_high"))
    mean = float(b.mean()), float(a.mean())
    return Lift(value, low, high, *mean, found["p"], float(metrics.normalized_gain(*mean)))


def sign_flip(differences: Array, seed: int = 0) -> float:
    """Two-sided p of a mean of 0, if the sign of each difference were a coin's. Shape: (N,)."""
    n = len(differences)
    if n <= EXACT:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        signs = 1.0 - 2.0 * bits
        means = signs @ differences
        return float((np.abs(means) >= abs(differences.sum()) - 1e-12).mean())
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (DRAWS, n))
    beyond = (np.abs(signs @ differences) >= abs(differences.sum()) - 1e-12).sum()
    return float((beyond + 1) / (DRAWS + 1))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p values (1979)."""
    order = np.argsort(p)
    adjusted, least = np.ones(len(p)), 0.0
    for rank, i in enumerate(order):
        least = max(least, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = least
    return [float(x) for x in adjusted]


def domain_lifts(
    before: Array, after: Array, domains: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Lift in points and Holm's p by domain.

    p is of the signs of the differences of the domain's pairs of task and agent: whether *these*
    tasks changed. With three tasks a domain, nothing can be said of others of its kind.

    Args:
        before: Shape: (T, A, S).
        after: Likewise.
        domains: Of each task.
    """
    difference = nan_mean(after, 2) - nan_mean(before, 2)  # (T, A)
    names = sorted(set(domains))
    values, p = [], []
    for name in names:
        part = difference[[d == name for d in domains]]
        values.append(100 * float(np.nanmean(nan_mean(part, 1))) if part.size else 0.0)
        p.append(sign_flip(part[~np.isnan(part)]))
    return {n: (v, q) for n, v, q in zip(names, values, holm(p), strict=True)}


@dataclass(frozen=True)
class Regressions:
    """Tasks that a condition makes worse. With few trials, many fall by chance.

    Attributes:
        fallen: All whose rate is lower.
        significant: Of these, the ones that Fisher's exact test finds at a false discovery rate of
            0.1 among all tasks.
    """

    fallen: tuple[str, ...]
    significant: tuple[str, ...]


def regressions(before: Array, after: Array, tasks: Sequence[str]) -> Regressions:
    """Tasks that fell. Shapes: (T, A, S) each; trials of all agents count together."""
    p, fallen = [], []
    for i, name in enumerate(tasks):
        x, y = (v[i][~np.isnan(v[i])] for v in (before, after))
        table = [[x.sum(), len(x) - x.sum()], [y.sum(), len(y) - y.sum()]]
        p.append(float(fisher_exact(table, alternative="greater").pvalue))
        if len(x) and y.mean() < x.mean():
            fallen.append(name)
    adjusted = false_discovery_control(p)
    found = [n for n, q in zip(tasks, adjusted, strict=True) if q <= FDR and n in fallen]
    return Regressions(tuple(fallen), tuple(found))


@dataclass(frozen=True)
class Comparison:
    """A condition against the one without skills.

    Attributes:
        lift: Over all agents.
        by_agent: Lift in points by number of the agent; of those that have trials.
        fell: Tasks that got worse.
    """

    lift: Lift
    by_agent: dict[int, float]
    fell: Regressions


def compare(before: Array, after: Array, domain: Array, tasks: Sequence[str]) -> Comparison:
    """Compares two conditions.

    Args:
        before: See :func:`paired_lift`.
        after: Likewise.
        domain: Likewise.
        tasks: Names.
    """
    by_agent = {
        a: paired_lift(before[:, a : a + 1], after[:, a : a + 1], domain).value
        for a in range(before.shape[1])
        if not np.isnan(before[:, a]).all()
    }
    lift = paired_lift(before, after, domain)
    return Comparison(lift, by_agent, regressions(before, after, tasks))


def variance_components(outcomes: Array) -> dict[str, float]:
    """How much of the variance of outcomes is due to tasks, agents, their pairs, and seeds.

    Moments of the two-way crossed random-effects model with replication (Searle, Casella and
    McCulloch, Variance Components, 1992). Estimates below 0 are set to 0.

    Args:
        outcomes: Without NaN, at least 2 of each. Shape: (T, A, S).

    Returns:
        Shares of the sum: ``task``, ``agent``, ``task_agent`` and ``seed``; empty if there are too
        few tasks, agents or trials.
    """
    t, a, s = outcomes.shape
    if min(t, a, s) < 2 or np.isnan(outcomes).any():
        return {}
    cell = outcomes.mean(2)
    by_task, by_agent, grand = cell.mean(1), cell.mean(0), cell.mean()
    error = ((outcomes - cell[..., None]) ** 2).sum() / (t * a * (s - 1))
    both = s * ((cell - by_task[:, None] - by_agent + grand) ** 2).sum() / ((t - 1) * (a - 1))
    task = a * s * ((by_task - grand) ** 2).sum() / (t - 1)
    agent = t * s * ((by_agent - grand) ** 2).sum() / (a - 1)
    parts = {
        "task": (task - both) / (a * s),
        "agent": (agent - both) / (t * s),
        "task_agent": (both - error) / s,
        "seed": error,
    }
    clipped = {name: max(0.0, float(value)) for name, value in parts.items()}
    total = sum(clipped.values()) or 1.0
    return {name: value / total for name, value in clipped.items()}
