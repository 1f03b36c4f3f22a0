"""What DegradeQuery is measured by, beside the usual binary metrics."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import (
    BinaryAccuracy,
    BinaryAveragePrecision,
    BinaryCalibrationError,
    BinaryMatthewsCorrCoef,
)
from torchmetrics.functional.classification import binary_auroc
from torchmetrics.utilities import dim_zero_cat

from zoo.metrics import AUROC

TEMPERATURES = torch.logspace(-1, 1, 201)


def binary_metrics() -> dict[str, Metric | MetricCollection]:
    """The usual ones of probability and label, of the network and the forest alike."""
    return {
        "auroc": AUROC(),
        "accuracy": BinaryAccuracy(),
        "average_precision": BinaryAveragePrecision(),
        "mcc": BinaryMatthewsCorrCoef(),
        "ece": BinaryCalibrationError(n_bins=10),
    }


class GroupAUROC(Metric):
    """Mean of the AUROC within groups that have enough rows of both classes.

    Pooled over targets, AUROC rewards knowing each target's base rate; within one it cannot.

    Args:
        least: Rows that a group must have.
        **kwargs: Of the base class.
    """

    full_state_update = False
    scores: list[Tensor]
    labels: list[Tensor]
    groups: list[Tensor]

    def __init__(self, least: int = 10, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.least = least
        for name in ("scores", "labels", "groups"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, scores: Tensor, labels: Tensor, groups: Tensor) -> None:
        """Adds rows. Shape of each: (B,)."""
        self.scores.append(scores)
        self.labels.append(labels)
        self.groups.append(groups)

    def compute(self) -> Tensor:
        """Mean over the groups; 0.5 if there is none. Shape: ()."""
        found = list(self.by_group().values())
        return torch.stack(found).mean() if found else torch.tensor(0.5, device=self.device)

    def by_group(self) -> dict[int, Tensor]:
        """AUROC of each group that has enough rows of both classes."""
        scores, labels, groups = map(dim_zero_cat, (self.scores, self.labels, self.groups))
        found = {}
        for group in sorted(set(groups.tolist())):
            rows = groups == group
            both = 0 < int(labels[rows].sum()) < int(rows.sum())
            if both and int(rows.sum()) >= self.least:
                found[group] = binary_auroc(scores[rows], labels[rows])
        return found


class WeightedMean(Metric):
    """Mean of values with a weight each; 0.5, chance, if all weights are 0."""

    full_state_update = False
    total: Tensor
    weight: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name in ("total", "weight"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, values: Tensor, weights: Tensor) -> None:
        """Adds values. Shape of both: (B,)."""
        self.total += (values.double() * weights.double()).sum()
        self.weight += weights.double().sum()

    def compute(self) -> Tensor:
        """Shape: ()."""
        mean = self.total / self.weight.clamp_min(1e-12)
        return torch.where(self.weight > 0, mean, 0.5).float()


class Temperature(Metric):
    """The temperature that makes logits on validation likeliest, of 201 between 0.1 and 10.

    After "On calibration of modern neural networks", C. Guo et al., arXiv 1706.04599. Sums, not
    logits, are kept, so that ranks have as little to exchange as one.
    """

    full_state_update = False
    loss: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        zeros = torch.zeros(len(TEMPERATURES), dtype=torch.float64)
        self.add_state("loss", zeros, dist_reduce_fx="sum")

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Adds the cross-entropy at each temperature. Shape of both: (B,)."""
        scaled = logits.double()[:, None] / TEMPERATURES.to(logits.device, torch.float64)
        sign = 1 - 2 * labels.double()[:, None]
        self.loss += torch.nn.functional.softplus(sign * scaled).sum(dim=0)

    def compute(self) -> Tensor:
        """Shape: ()."""
        return TEMPERATURES.to(self.loss.device)[self.loss.argmin()]
