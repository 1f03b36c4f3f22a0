"""Metrics of HDR images that compare with the input."""

import torch

from zoo.display import encode
from zoo.hdr_bracket.metrics import BetterThanInput


def test_counts_images_that_gain_not_decibels():
    truth = torch.rand(3, 3, 8, 8) * 4
    image = encode(truth)
    nearly, worse = truth.clone(), image.pow(2.2)
    nearly[0] *= 0.99
    worse[:2] = nearly[:2]
    metric = BetterThanInput()
    metric.update(worse, truth, image)
    assert metric.compute() == 2 / 3
