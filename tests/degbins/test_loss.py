"""Losses against numbers worked out by hand, naive loops and limit cases."""

import math

import numpy as np
import pytest
import torch

from zoo.degbins.bins import StageBins, adaptive_centers, expected_residual, uniform_centers
from zoo.degbins.loss import (
    bin_cross_entropy,
    degradation_loss,
    degrade,
    masked_mean,
    reconstruction_loss,
    soft_label,
)


def image(*rows):
    return torch.tensor(rows, dtype=torch.float32)[None, None]


def test_reconstruction_weights_stages_and_ignores_the_unknown():
    target = image([1.0, 2.0, math.nan])
    mask = image([1, 1, 0]).bool()
    stages = [image([2.0, 2.0, 9.0]), image([1.0, 4.0, 9.0]), image([1.5, 2.0, 9.0])]
    # errors 0.5, 1.0, 0.25 of the two known pixels; weights 1/4, 1/2, 1
    assert reconstruction_loss(stages, target, mask).item() == pytest.approx(0.875)


def test_reconstruction_has_finite_gradient_where_the_truth_is_nan():
    stage = image([2.0, 3.0]).requires_grad_()
    reconstruction_loss([stage], image([1.0, math.nan]), image([1, 0]).bool()).backward()
    assert stage.grad.flatten().tolist() == [1.0, 0.0]


def test_reconstruction_of_the_truth_is_zero():
    depth = torch.rand(2, 1, 5, 6)
    assert reconstruction_loss([depth, depth], depth, torch.ones_like(depth).bool()) == 0


def test_degrade_equals_a_loop_over_pixels():
    rng = np.random.default_rng(0)
    depth = rng.random((2, 1, 8, 9), dtype=np.float32)
    logits = rng.normal(size=(2, 25, 8, 9)).astype(np.float32)
    expected = np.zeros((2, 1, 4, 5))
    for b in range(2):
        for y in range(4):
            for x in range(5):
                weight = np.exp(logits[b, :, y + 2, x + 2])
                patch = depth[b, 0, y : y + 5, x : x + 5].ravel()
                expected[b, 0, y, x] = (weight / weight.sum()) @ patch
    result = degrade(torch.from_numpy(depth), torch.from_numpy(logits))
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-6)


def test_degradation_loss_by_hand():
    depth = torch.zeros(1, 1, 6, 6)
    depth[0, 0, 2, 2] = 25.0  # a flat kernel spreads it as 1 over its 2 x 2 inner pixels
    d_up = torch.zeros(1, 1, 6, 6)
    d_up[0, 0, 2, 2] = 5.0
    flat = torch.zeros(1, 25, 6, 6)
    assert degradation_loss(flat, depth, d_up).item() == pytest.approx((4 + 1 + 1 + 1) / 4)
    mask = d_up > 0
    assert degradation_loss(flat, depth, d_up, mask).item() == pytest.approx(4)


def test_degradation_loss_of_a_sharp_kernel_is_the_difference():
    depth, d_up = torch.rand(2, 1, 12, 10), torch.rand(2, 1, 12, 10)
    identity = torch.full((2, 25, 12, 10), -50.0)
    identity[:, 12] = 50.0
    difference = (depth - d_up).abs()[..., 2:-2, 2:-2].mean()
    torch.testing.assert_close(degradation_loss(identity, depth, d_up), difference)


def test_soft_label_by_hand():
    centers = uniform_centers(4)  # 1/8, 3/8, 5/8, 7/8
    position = image([0.125, 0.4375, 0.5, -3.0, 9.0])
    label = soft_label(position, centers)[0, :, 0].T
    expected = [[1, 0, 0, 0], [0, 0.75, 0.25, 0], [0, 0.5, 0.5, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    torch.testing.assert_close(label, torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize("adaptive", [False, True])
def test_soft_label_has_the_position_as_its_mean(adaptive):
    torch.manual_seed(0)
    centers = adaptive_centers(torch.randn(2, 6, 5, 7)) if adaptive else uniform_centers(6)
    first, last = centers[:, :1], centers[:, -1:]
    position = first + (last - first) * torch.rand(2, 1, 5, 7)
    label = soft_label(position, centers)
    assert label.min() >= 0
    assert ((label > 0).sum(dim=1) <= 2).all()
    torch.testing.assert_close(label.sum(dim=1), torch.ones(2, 5, 7))
    torch.testing.assert_close((label * centers).sum(dim=1, keepdim=True), position)


def test_soft_label_of_one_bin_is_certain():
    assert soft_label(torch.rand(1, 1, 2, 2), uniform_centers(1)).eq(1).all()


def bins_around_zero(logits):
    low = torch.full((1, 1, *logits.shape[2:]), -0.5)
    return StageBins(logits, low, -low, uniform_centers(logits.shape[1]))


def test_cross_entropy_by_hand():
    bins = bins_around_zero(torch.log(torch.tensor([0.1, 0.2, 0.3, 0.4])).view(1, 4, 1, 1))
    # residual 0 lies midway between bins 2 and 3, at -1/8 and 1/8
    loss = bin_cross_entropy(bins, image([0.0]), image([1]).bool())
    assert loss.item() == pytest.approx(-0.5 * math.log(0.2) - 0.5 * math.log(0.3))


def test_cross_entropy_is_smallest_at_the_label_and_gives_the_residual():
    residual = image([0.2, -0.1])
    mask = torch.ones_like(residual).bool()
    label = soft_label(residual + 0.5, uniform_centers(4))
    right = bins_around_zero(label.clamp_min(1e-12).log())
    entropy = -(label * label.clamp_min(1e-12).log()).sum(dim=1).mean()
    assert bin_cross_entropy(right, residual, mask).item() == pytest.approx(
        entropy.item(), rel=1e-5
    )
    assert bin_cross_entropy(bins_around_zero(torch.zeros(1, 4, 1, 2)), residual, mask) > entropy
    torch.testing.assert_close(expected_residual(right), residual)


def test_cross_entropy_leaves_the_range_alone():
    logits = torch.zeros(1, 4, 1, 1, requires_grad=True)
    low = torch.full((1, 1, 1, 1), -0.5, requires_grad=True)
    bins = StageBins(logits, low, low + 1, uniform_centers(4))
    bin_cross_entropy(bins, image([math.nan]), image([0]).bool()).backward()
    assert logits.grad.eq(0).all()
    bin_cross_entropy(bins, image([0.3]), image([1]).bool()).backward()
    assert logits.grad.abs().sum() > 0
    assert low.grad is None


def test_everything_is_zero_if_nothing_is_known():
    x = torch.rand(1, 1, 8, 8)
    nothing = torch.zeros_like(x).bool()
    assert masked_mean(x * math.nan, nothing) == 0
    assert reconstruction_loss([x, x], x + 1, nothing) == 0
    assert degradation_loss(torch.zeros(1, 25, 8, 8), x, x + 1, nothing) == 0
    assert bin_cross_entropy(bins_around_zero(torch.rand(1, 4, 8, 8)), x, nothing) == 0
