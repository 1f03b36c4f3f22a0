"""What the test of a face anti-spoofing model measures beside error rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from zoo.metrics import equal_error_point

LIMIT_QUANTILE = 0.95  # of the source validation data: beyond it a sample is abstained from


class SourceCalibration(Metric):
    """Thresholds and limits of uncertainty from validation data, for each set of sensors.

    The sensors of a sample are known when it is decided on, and scores shift when one is missing;
    so each set of sensors gets the threshold that validation samples with just this set ask for.

    Args:
        masks: Sets of sensors.
        uncertainties: U.
    """

    is_differentiable = False
    full_state_update = False
    scores: list[Tensor]
    labels: list[Tensor]
    doubts: list[Tensor]

    def __init__(self, masks: int, uncertainties: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.masks, self.uncertainties = masks, uncertainties
        self.add_state("scores", [], dist_reduce_fx="cat")
        self.add_state("labels", [], dist_reduce_fx="cat")
        self.add_state("doubts", [], dist_reduce_fx="cat")

    def update(self, scores: Tensor, labels: Tensor, doubts: Tensor) -> None:
        """Adds a batch.

        Args:
            scores: Of each set of sensors, NaN where a sample lacks one. Shape: (B, masks).
            labels: 1 live, 0 attack. Shape: (B,).
            doubts: Uncertainties, NaN as the scores are. Shape: (B, masks, U).
        """
        self.scores.append(scores.detach().float())
        self.labels.append(labels.detach())
        self.doubts.append(doubts.detach().float())

    def compute(self) -> tuple[Tensor, Tensor]:
        """Thresholds at the equal error points, and 95 % quantiles. Shapes: (masks,), (masks, U).

        A set of sensors that no sample has gets the threshold 0.5 and the limit 1, which nothing
        exceeds.
        """
        scores, labels = dim_zero_cat(self.scores), dim_zero_cat(self.labels)
        doubts = dim_zero_cat(self.doubts)
        thresholds = scores.new_full((self.masks,), 0.5)
        limits = scores.new_ones(self.masks, self.uncertainties)
        for index in range(self.masks):
            known = ~scores[:, index].isnan()
            if bool(known.any()):
                _, thresholds[index] = equal_error_point(scores[known, index], labels[known])
                limits[index] = doubts[known, index].quantile(LIMIT_QUANTILE, dim=0)
        return thresholds, limits


class GroupMeans(Metric):
    """Means of several values over several groups of samples, by name.

    Args:
        groups: Names of the groups.
        values: Names of the values.
    """

    is_differentiable = False
    full_state_update = False
    sums: Tensor
    counts: Tensor

    def __init__(self, groups: Sequence[str], values: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.groups, self.values = tuple(groups), tuple(values)
        zeros = torch.zeros(len(groups), len(values), dtype=torch.float64)
        self.add_state("sums", zeros, dist_reduce_fx="sum")
        self.add_state("counts", zeros[:, 0].clone(), dist_reduce_fx="sum")

    def update(self, values: Tensor, group: Tensor) -> None:
        """Adds a batch of values, shape (B, V), with the group of each sample, shape (B,)."""
        self.sums.index_add_(0, group, values.double())
        self.counts += torch.bincount(group, minlength=len(self.groups))

    def compute(self) -> dict[str, Tensor]:
        """``<value>_<group>``: the mean, for groups that have a sample."""
        means = (self.sums / self.counts.clamp_min(1)[:, None]).float()
        return {
            f"{value}_{group}": means[i, j]
            for i, group in enumerate(self.groups)
            for j, value in enumerate(self.values)
            if self.counts[i] > 0
        }


class Largest(Metric):
    """The largest value so far; 0 before the first."""

    is_differentiable = False
    full_state_update = False
    value: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("value", torch.tensor(0.0), dist_reduce_fx="max")

    def update(self, values: Tensor) -> None:
        """Adds values of any shape."""
        self.value = torch.maximum(self.value, values.max())

    def compute(self) -> Tensor:
        """Shape: ()."""
        return self.value
