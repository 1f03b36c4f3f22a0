"""Spearman's rank correlation, without loops over equal values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from zoo.metrics.image_mean import ImageMean


def ranks(x: Tensor) -> Tensor:
    """Ranks from 0, ties sharing their mean rank, float64. Shape: (N,)."""
    _, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    means: Tensor = last - (counts + 1) / 2
    return means[inverse]


def rank_correlation(first: Tensor, second: Tensor) -> Tensor:
    """Spearman's correlation of two sets of N numbers; 0 where one of them does not vary.

    Args:
        first: Shape: (N,).
        second: Shape: (N,).

    Returns:
        In -1..1, float32. Shape: ().
    """
    both = torch.stack([ranks(first), ranks(second)])
    both = both - both.mean(dim=1, keepdim=True)
    norm = both.square().sum(dim=1).prod().sqrt()
    return (both.prod(dim=0).sum() / norm.clamp_min(1e-12)).float()


class RankCorrelation(Metric):
    """Over all samples."""

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    first: list[Tensor]
    second: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("first", [], dist_reduce_fx="cat")
        self.add_state("second", [], dist_reduce_fx="cat")

    def update(self, first: Tensor, second: Tensor) -> None:
        """Adds a batch of pairs. Shape of each: (B,)."""
        self.first.append(first.detach().float())
        self.second.append(second.detach().float())

    def compute(self) -> Tensor:
        """In -1..1. Shape: ()."""
        return rank_correlation(dim_zero_cat(self.first), dim_zero_cat(self.second))


class ImageRankCorrelation(ImageMean):
    """Of two maps over each image's known pixels; the mean over images."""

    def update(self, first: Tensor, second: Tensor, mask: Tensor) -> None:
        """Adds a batch; images with fewer than two known pixels are skipped.

        Args:
            first: Shape: (B, 1, H, W).
            second: Shape: (B, 1, H, W).
            mask: Where to compare, bool. Shape: (B, 1, H, W).
        """
        for x, y, known in zip(first, second, mask, strict=True):  # each has other known pixels
            if known.sum() >= 2:
                self.add(rank_correlation(x[known], y[known])[None])
