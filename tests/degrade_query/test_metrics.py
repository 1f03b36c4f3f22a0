"""Metrics, the temperature among them."""

import pytest
import torch

from zoo.degrade_query.metrics import TEMPERATURES, GroupAUROC, Temperature, WeightedMean


def test_metrics_by_hand():
    metric = GroupAUROC(least=3)
    metric.update(torch.tensor([0.9, 0.1, 0.5]), torch.tensor([1, 0, 1]), torch.zeros(3))
    metric.update(
        torch.tensor([0.1, 0.9, 0.2, 0.9, 0.1]),
        torch.tensor([1, 0, 0, 1, 0]),
        torch.tensor([1, 1, 1, 2, 2]),
    )
    assert metric.compute() == pytest.approx((1.0 + 0.0) / 2)  # the third has two rows
    mean = WeightedMean()
    mean.update(torch.ones(2), torch.zeros(2))
    assert mean.compute() == 0.5  # nothing counted: chance
    mean.update(torch.tensor([0.2, 1.0]), torch.tensor([3.0, 1.0]))
    assert mean.compute() == pytest.approx(0.4)
    logits, labels = torch.randn(4000) * 2, torch.rand(4000)
    temperature = Temperature()
    temperature.update(3 * logits, (labels < logits.sigmoid()).long())
    assert float(temperature.compute()) == pytest.approx(3, rel=0.15)
    assert len(TEMPERATURES) == 201
