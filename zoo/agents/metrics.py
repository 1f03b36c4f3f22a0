"""Metrics of agents: proportions with intervals, several tries, paired differences, costs."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import binomtest, norm
from torch import Tensor
from torchmetrics import Metric

from zoo.errors import ZooError


class Interval(NamedTuple):
    """An estimate with its interval."""

    value: float
    low: float
    high: float


def wilson_interval(successes: float, trials: float, level: float = 0.95) -> Interval:
    """Wilson's score interval of a proportion (JASA 1927); (nan, 0, 1) without trials."""
    if trials <= 0:
        return Interval(math.nan, 0.0, 1.0)
    z = float(norm.ppf(0.5 + level / 2))
    p, spread = successes / trials, z * z / trials
    centre = (p + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(p * (1 - p) / trials + spread / (4 * trials))
    return Interval(p, max(0.0, centre - half), min(1.0, centre + half))


class _Sums(Metric):
    """A metric of which the state adds up over batches and processes."""

    is_differentiable = False
    full_state_update = False

    def _sum(self, name: str, *shape: int) -> None:
        zeros = torch.zeros(shape, dtype=torch.float64)
        self.add_state(name, zeros, dist_reduce_fx="sum")


class SuccessRate(_Sums):
    """Share of the episodes that succeed, overall or by family.

    Args:
        families: Names of the families; ``None`` gives one number.
        name: Of the values by family: ``<name>_<family>``, and ``<name>`` for all.
    """

    wins: Tensor
    count: Tensor

    def __init__(
        self, families: Sequence[str] | None = None, name: str = "success", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.families, self.name = None if families is None else tuple(families), name
        self._sum("wins", len(self.families or "1"))
        self._sum("count", len(self.families or "1"))

    def update(self, success: Tensor, family: Tensor | None = None) -> None:
        """Adds episodes. Shapes: (B,) bool or float, and (B,) numbers of families."""
        if family is None:
            family = torch.zeros(len(success), dtype=torch.long, device=success.device)
        self.wins.index_add_(0, family, success.double())
        self.count.index_add_(0, family, torch.ones_like(success, dtype=torch.float64))

    def compute(self) -> Tensor | dict[str, Tensor]:
        """The rate; with families a dict of it for all and for each that has an episode."""
        rate = (self.wins.sum() / self.count.sum().clamp_min(1)).float()
        if self.families is None:
            return rate
        each = (self.wins / self.count.clamp_min(1)).float()
        return {self.name: rate} | {
            f"{self.name}_{family}": each[i]
            for i, family in enumerate(self.families)
            if self.count[i] > 0
        }

    def intervals(self, level: float = 0.95) -> dict[str, Interval]:
        """Wilson's intervals by family, or of ``""`` without families."""
        pairs = zip(self.wins.tolist(), self.count.tolist(), strict=True)
        names = self.families or ("",)
        return {n: wilson_interval(w, c, level) for n, (w, c) in zip(names, pairs, strict=True)}


class PassAtK(_Sums):
    """Chance that one of k tries succeeds, from n >= k tries of each task.

    1 - C(n - c, k) / C(n, k), which is unbiased (arXiv 2107.03374).

    Args:
        k: Tries.
    """

    total: Tensor
    count: Tensor

    def __init__(self, k: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if k < 1:
            raise ZooError(f"pass@k needs k >= 1, not {k}.")
        self.k = k
        self._sum("total")
        self._sum("count")

    def update(self, success: Tensor) -> None:
        """Adds tasks with their tries. Shape: (B, n), bool or 0 and 1."""
        n = success.shape[1]
        if n < self.k:
            raise ZooError(f"{type(self).__name__}(k={self.k}) needs so many tries, not {n}.")
        right = success.double().sum(dim=1)
        self.total += self._estimate(right, n).sum()
        self.count += len(success)

    def _estimate(self, right: Tensor, n: int) -> Tensor:
        return 1 - _share_of_choices(n - right, n, self.k)

    def compute(self) -> Tensor:
        """The mean over the tasks."""
        return (self.total / self.count.clamp_min(1)).float()


class PassHatK(PassAtK):
    """Chance that all of k tries succeed: C(c, k) / C(n, k) (arXiv 2406.12045)."""

    def _estimate(self, right: Tensor, n: int) -> Tensor:
        return _share_of_choices(right, n, self.k)


def _share_of_choices(m: Tensor, n: int, k: int) -> Tensor:
    """C(m, k) / C(n, k) as a product, for many m. Shape: (B,)."""
    steps = torch.arange(k, dtype=torch.float64, device=m.device)
    return ((m[:, None] - steps).clamp_min(0) / (n - steps)).prod(dim=1)


class MeanPerTask(_Sums):
    """Mean of an amount per task: ``TokensPerTask`` and ``CostPerTask`` are this by name."""

    total: Tensor
    count: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._sum("total")
        self._sum("count")

    def update(self, amount: Tensor) -> None:
        """Adds tasks. Shape: (B,)."""
        self.total += amount.double().sum()
        self.count += len(amount)

    def compute(self) -> Tensor:
        """The mean; 0 without tasks."""
        return (self.total / self.count.clamp_min(1)).float()


class TokensPerTask(MeanPerTask):
    """Prompt and completion tokens of a task."""


class CostPerTask(MeanPerTask):
    """Price of a task, in the unit of the amounts."""


class AttackSuccessRate(SuccessRate):
    """Share of attacked episodes in which the attacker's goal was reached."""

    def __init__(self, families: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(families, "attack_success", **kwargs)


class UtilityUnderAttack(SuccessRate):
    """Share of attacked episodes in which the user's goal was reached all the same."""

    def __init__(self, families: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(families, "utility_under_attack", **kwargs)


class NormalizedGain(_Sums):
    """(p1 - p0) / (1 - p0): how much of what was left to gain is gained; 0 where nothing was."""

    before: Tensor
    after: Tensor
    count: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name in ("before", "after", "count"):
            self._sum(name)

    def update(self, before: Tensor, after: Tensor) -> None:
        """Adds tasks under both conditions. Shape: (B,) each."""
        self.before += before.double().sum()
        self.after += after.double().sum()
        self.count += len(before)

    def compute(self) -> Tensor:
        """Of the mean rates."""
        p0, p1 = (x / self.count.clamp_min(1) for x in (self.before, self.after))
        return torch.as_tensor(normalized_gain(p0, p1)).float()


def normalized_gain(before: Tensor | float, after: Tensor | float) -> Tensor | float:
    """What :class:`NormalizedGain` gives, of two mean rates."""
    return (after - before) / (1 - before) if before < 1 else 0.0 * after


class PairedLift(Metric):
    """Mean difference between two conditions on the same tasks, with interval and test.

    Args:
        resamples: Of the bootstrap over tasks, within strata.
        level: Of its interval.
        seed: Of the resampling.
    """

    is_differentiable = False
    full_state_update = False
    before: list[Tensor]
    after: list[Tensor]
    stratum: list[Tensor]

    def __init__(
        self, resamples: int = 10_000, level: float = 0.95, seed: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.resamples, self.level, self.seed = resamples, level, seed
        for name in ("before", "after", "stratum"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, before: Tensor, after: Tensor, stratum: Tensor | None = None) -> None:
        """Adds tasks: pass rates or outcomes under both conditions, and the stratum of each.

        Shape: (B,) each.
        """
        if before.shape != after.shape:
            raise ZooError(
                f"Paired conditions have {len(before)} and {len(after)} tasks: they need the same."
            )
        self.before.append(before.double())
        self.after.append(after.double())
        zeros = torch.zeros(len(before), dtype=torch.long, device=before.device)
        self.stratum.append(zeros if stratum is None else stratum)

    def compute(self) -> dict[str, Tensor]:
        """``lift``, ``lift_low``, ``lift_high`` and McNemar's exact ``p`` of majority outcomes."""
        before, after, stratum = (
            torch.cat(list(x)).cpu().numpy() if isinstance(x, list) else x.cpu().numpy()
            for x in (self.before, self.after, self.stratum)
        )
        found = paired_lift(before, after, stratum, self.resamples, self.level, self.seed)
        return {name: torch.tensor(value) for name, value in found.items()}


def paired_lift(
    before: np.ndarray,
    after: np.ndarray,
    stratum: np.ndarray,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, float]:
    """What :class:`PairedLift` gives, of tasks that this process has.

    Args:
        before: Pass rates or outcomes of tasks. Shape: (B,).
        after: Likewise, under the other condition.
        stratum: Of each task, integers. Shape: (B,).
        resamples: Of the bootstrap.
        level: Of the interval.
        seed: Of the resampling.

    Returns:
        ``lift``, ``lift_low``, ``lift_high`` and ``p``.
    """
    difference = after - before
    means = bootstrap_means(difference, stratum, resamples, seed)
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    found = {"lift": difference.mean(), "lift_low": low, "lift_high": high}
    found["p"] = mcnemar(before > 0.5, after > 0.5)
    return {name: float(value) for name, value in found.items()}


def bootstrap_means(
    values: np.ndarray, stratum: np.ndarray, resamples: int = 10_000, seed: int = 0
) -> np.ndarray:
    """Resampled means of tasks within strata.

    Of n tasks of a stratum n - 1 are drawn, which gives the mean its variance (Rao and Wu, JASA
    1988); n draws would give (n - 1) / n of it, too little by a third where a stratum has three.
    Strata of one task are pooled.

    Args:
        values: Of each task. Shape: (B,).
        stratum: Of each task, integers. Shape: (B,).
        resamples: How many.
        seed: Of the draws.

    Returns:
        Shape: (resamples,).
    """
    numbers, place, sizes = np.unique(stratum, return_inverse=True, return_counts=True)
    place = np.where(sizes[place] == 1, -1, place)
    if (place == -1).sum() == 1 and len(values) > 1:
        place = np.where(place == -1, place.max(), place)
    rng = np.random.default_rng(seed)
    means = np.zeros(resamples)
    for number in range(-1, len(numbers)):  # few: domains
        part = values[place == number]
        n = len(part)
        if n == 1:  # of a single task nothing is known but itself
            means += part[0] / len(values)
        elif n > 1:
            # Sums of resampled values, without an index for each: counts are multinomial.
            counts = rng.multinomial(n - 1, np.full(n, 1 / n), resamples)
            means += counts @ part * (n / (n - 1)) / len(values)
    return means


def mcnemar(before: np.ndarray, after: np.ndarray) -> float:
    """Exact two-sided p of McNemar's test; 1 where no outcome changed. Shape: (B,) bool each."""
    lost, won = int((before & ~after).sum()), int((~before & after).sum())
    if lost + won == 0:
        return 1.0
    return float(binomtest(won, won + lost).pvalue)


class ExactMatch(MeanPerTask):
    """Share of answers equal to one of the references, after :func:`normalise_words`."""

    def update(self, answers: Sequence[str], references: Sequence[Sequence[str]]) -> None:  # type: ignore[override]
        """Adds answers, each with its references."""
        super().update(_best(answers, references, exact_match))


class TokenF1(MeanPerTask):
    """Mean F1 of the words of answers, each against its best reference (arXiv 1606.05250)."""

    def update(self, answers: Sequence[str], references: Sequence[Sequence[str]]) -> None:  # type: ignore[override]
        """Adds answers, each with its references."""
        super().update(_best(answers, references, token_f1))


def _best(answers: Sequence[str], references: Sequence[Sequence[str]], score: Any) -> Tensor:
    for row, known in enumerate(references):
        if not known:
            raise ZooError(f"Row {row} has no reference answer.")
    pairs = zip(answers, references, strict=True)
    return torch.tensor([max(score(a, r) for r in known) for a, known in pairs])


def normalise_words(text: str) -> list[str]:
    """Words in lower case without punctuation and English articles."""
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def exact_match(answer: str, reference: str) -> float:
    """1 if the words are equal, else 0."""
    return float(normalise_words(answer) == normalise_words(reference))


def token_f1(answer: str, reference: str) -> float:
    """Harmonic mean of the precision and recall of words, as a bag."""
    ours, theirs = normalise_words(answer), normalise_words(reference)
    if not ours or not theirs:
        return float(ours == theirs)
    common = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * common / (len(ours) + len(theirs))
