"""Error rates of two-class decisions as biometrics reports them.

A score says how much a sample looks bona fide (label 1: live, genuine, real) rather than an attack
(label 0). At a threshold t, samples with score >= t are accepted. FAR is the share of attacks that
are accepted, FRR the share of bona fide samples that are rejected, and HTER their mean (ISO/IEC
30107-3 calls the first two APCER and BPCER).

HTER at a threshold chosen on other data is what a user of the system meets. HTER at the threshold
where FAR and FRR of the test data themselves are equal is the equal error rate: it has looked at
the test labels, so the two must never stand in one column.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import BinaryAUROC
from torchmetrics.utilities import dim_zero_cat


def equal_error_point(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Where FAR and FRR are nearest to each other.

    Thresholds between neighbouring scores are compared; of several equally good ones the lowest
    is taken.

    Args:
        scores: Any order. Shape: (N,).
        labels: 1 bona fide, 0 attack. Shape: (N,).

    Returns:
        The mean of both rates there, and the threshold, half-way between two scores. Shape of
        each: (). With one class only there is no such point: 0 and 0.5.
    """
    scores = scores.double()
    genuine, attack = scores[labels == 1].sort().values, scores[labels == 0].sort().values
    if len(genuine) == 0 or len(attack) == 0:
        return scores.new_tensor(0.0), scores.new_tensor(0.5)
    distinct = torch.unique(scores)  # sorted
    middle = (distinct[1:] + distinct[:-1]) / 2
    thresholds = torch.cat([distinct[:1], middle, distinct[-1:] + 1])
    frr = torch.searchsorted(genuine, thresholds) / len(genuine)
    far = 1 - torch.searchsorted(attack, thresholds) / len(attack)
    best = (far - frr).abs().argmin()
    return (far + frr)[best] / 2, thresholds[best]


class AUROC(BinaryAUROC):
    """Area under the ROC curve; 0.5 instead of a warning where one class is absent."""

    def compute(self) -> Tensor:  # type: ignore[override]
        """Of all scores so far. Shape: ()."""
        labels = dim_zero_cat(self.target)
        if bool((labels == labels[0]).all()):
            return torch.tensor(0.5, device=self.device)
        return super().compute()


class HTER(Metric):
    """Half total error rate at thresholds that come with the scores."""

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    errors: Tensor
    counts: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("errors", torch.zeros(2, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(2, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, scores: Tensor, labels: Tensor, threshold: Tensor | float = 0.5) -> None:
        """Adds a batch.

        Args:
            scores: High for bona fide. Shape: (B,).
            labels: 1 bona fide, 0 attack. Shape: (B,).
            threshold: Accepted are scores >= threshold; one for all, or one each. Shape: (B,).
        """
        accepted = scores >= threshold
        bona_fide = labels == 1
        wrong = torch.stack([accepted & ~bona_fide, ~accepted & bona_fide]).sum(dim=1)
        self.errors += wrong
        self.counts += torch.stack([(~bona_fide).sum(), bona_fide.sum()])

    def compute(self) -> Tensor:
        """(FAR + FRR) / 2; a class without samples counts as without errors. Shape: ()."""
        return (self.errors / self.counts.clamp_min(1)).mean().float()


class EqualErrorRate(Metric):
    """HTER at the threshold where the measured data's own FAR and FRR are equal."""

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    scores: list[Tensor]
    labels: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("scores", [], dist_reduce_fx="cat")
        self.add_state("labels", [], dist_reduce_fx="cat")

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Adds a batch of scores, high for bona fide, and labels. Shape of each: (B,)."""
        self.scores.append(scores.detach().float())
        self.labels.append(labels.detach())

    def compute(self) -> Tensor:
        """The rate. Shape: ()."""
        return self._point()[0].float()

    def _point(self) -> tuple[Tensor, Tensor]:
        return equal_error_point(dim_zero_cat(self.scores), dim_zero_cat(self.labels))


class EqualErrorThreshold(EqualErrorRate):
    """The threshold at which FAR and FRR are equal: for use on other data."""

    def compute(self) -> Tensor:
        """The threshold. Shape: ()."""
        return self._point()[1].float()
