"""Rank correlations against scipy."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from zoo.metrics import ImageRankCorrelation, RankCorrelation


def test_over_samples_with_ties():
    a, b = torch.randint(5, (2, 40), generator=torch.Generator().manual_seed(0))
    metric = RankCorrelation()
    metric.update(a[:10], b[:10])
    metric.update(a[10:], b[10:])
    assert metric.compute().item() == pytest.approx(spearmanr(a, b).statistic, abs=1e-6)


def test_of_what_does_not_vary_is_zero():
    metric = RankCorrelation()
    metric.update(torch.zeros(4), torch.rand(4))
    assert metric.compute() == 0


def test_over_the_known_pixels_of_images_and_the_mean_over_images():
    rng = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 3, 1, 9, 8, generator=rng)
    b = (4 * (b + a)).round()  # with ties
    mask = torch.rand(3, 1, 9, 8, generator=rng) > 0.3
    mask[2] = False  # skipped
    metric = ImageRankCorrelation()
    metric.update(a[:1], b[:1], mask[:1])
    metric.update(a[1:], b[1:], mask[1:])
    expected = [
        spearmanr(x[m].numpy(), y[m].numpy()).statistic
        for x, y, m in zip(a[:2], b[:2], mask[:2], strict=True)
    ]
    assert metric.compute().item() == pytest.approx(np.mean(expected), abs=1e-5)
    monotone = ImageRankCorrelation()
    monotone.update(a, a.exp(), torch.ones_like(mask))
    assert monotone.compute().item() == pytest.approx(1)
