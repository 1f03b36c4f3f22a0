"""Losses against naive versions, outliers and modality dropout against what they promise."""

import math

import pytest
import torch

from zoo.sem_fas.loss import budget_loss, diversity_loss, domain_loss, single_sensor_loss
from zoo.sem_fas.outliers import drop_modalities, make_outliers, permute_patches

RNG = torch.Generator().manual_seed(0)


def weighted_states(count=10, heads=2, dim=3):
    psi = torch.randn(count, heads, 2, dim, generator=RNG)
    return psi / psi.square().sum(dim=(1, 2, 3), keepdim=True).sqrt()


def density(psi):
    states = torch.complex(psi[:, 0], psi[:, 1])  # (K, d)
    return sum(torch.outer(s, s.conj()) for s in states)


def test_domain_loss_is_the_distance_of_mean_density_matrices_of_live_faces():
    psi = weighted_states()
    domain = torch.tensor([0, 0, 0, 1, 1, 1, 3, 3, 3, 3])
    live = torch.tensor([1, 1, 0, 1, 0, 1, 1, 0, 0, 1]).bool()
    means = [
        sum(density(psi[i]) for i in range(10) if domain[i] == d and live[i]) / 2 for d in (0, 1, 3)
    ]
    pairs = [(0, 1), (0, 2), (1, 2)]
    expected = sum((means[a] - means[b]).abs().square().sum() for a, b in pairs)
    torch.testing.assert_close(domain_loss(psi, domain, live, 4), expected)


def test_domains_without_a_live_face_take_no_part():
    psi = weighted_states().requires_grad_()
    domain = torch.arange(10) % 2
    for live in (torch.zeros(10).bool(), domain == 0):
        loss = domain_loss(psi, domain, live, 4)
        assert loss == 0
    loss.backward()
    assert psi.grad.isfinite().all()


def test_attacks_are_free():
    psi, domain = weighted_states(), torch.arange(10) % 2
    live = torch.arange(10) < 5
    moved = torch.where(live.view(-1, 1, 1, 1), psi, weighted_states())
    assert domain_loss(psi, domain, live, 2) == domain_loss(moved, domain, live, 2)


def test_single_sensor_loss_by_hand():
    alone = torch.tensor([[[0.1, 0.3], [0.2, 0.2], [0.9, 0.0]], [[0.3, 0.1]] * 3])
    mask = torch.tensor([[True, True, False], [False, True, False]])
    found = single_sensor_loss(alone, torch.tensor([1, 0]), mask)
    first = -(math.log(0.75) + math.log(0.5)) / 2
    assert found.item() == pytest.approx((first - math.log(0.75)) / 2, rel=1e-5)


def test_diversity_and_budget_by_hand():
    overlaps = torch.tensor([[[1.0, 0.2], [0.2, 1.0]], [[1.0, 0.6], [0.6, 1.0]]])
    assert diversity_loss(overlaps).item() == pytest.approx(0.4)
    assert diversity_loss(torch.ones(2, 1, 1)) == 0
    assert budget_loss(torch.tensor(0.3), 0.35) == 0
    assert budget_loss(torch.tensor(0.55), 0.35).item() == pytest.approx(0.04)


def faces(count=6, size=24):
    channels = {"rgb": 3, "depth": 1, "ir": 1}
    return {m: torch.rand(count, c, size, size, generator=RNG) for m, c in channels.items()}


@pytest.mark.parametrize("size", [16, 24, 29])
def test_patches_are_permuted_and_none_is_lost(size):
    torch.manual_seed(0)
    images = faces(4, size)["rgb"]
    found = permute_patches(images)
    assert not torch.equal(found, images)
    inner = size // 8 * 8
    assert torch.equal(found[:, :, inner:], images[:, :, inner:])
    for a, b in zip(found, images, strict=True):
        patches = [
            {
                tuple(x[:, i : i + 8, j : j + 8].flatten().tolist())
                for i in range(0, inner, 8)
                for j in range(0, inner, 8)
            }
            for x in (a, b)
        ]
        assert patches[0] == patches[1]


def test_an_outlier_has_a_replaced_sensor_among_those_that_are_there():
    torch.manual_seed(0)
    images = faces(3)
    mask = torch.tensor([[True, False, True], [True, True, True], [False, True, False]])
    odd, there = make_outliers(images, mask, 60)
    changed = torch.stack(
        [
            ~(odd[m][:, None] == images[m][None]).all(dim=(2, 3, 4)).any(dim=1)
            for m in ("rgb", "depth", "ir")
        ],
        dim=1,
    )
    assert (changed & there).any(dim=1).all()
    assert not (changed & ~there).any()
    share = changed[there].float().mean()
    assert 0.5 < share < 0.85  # 0.6, and at least one of each
    assert all(odd[m].min() >= 0 and odd[m].max() <= 1 for m in odd)


def test_dropout_leaves_a_sensor_and_adds_none():
    torch.manual_seed(0)
    mask = torch.tensor([[True, True, True], [True, False, False]]).repeat(3000, 1)
    left = drop_modalities(mask, (0.1, 0.3, 0.5))
    assert left.any(dim=1).all()
    assert not (left & ~mask).any()
    gone = 1 - left[::2].float().mean(dim=0)
    torch.testing.assert_close(gone, torch.tensor([0.085, 0.285, 0.485]), atol=0.02, rtol=0)
    assert torch.equal(drop_modalities(mask, (0, 0, 0)), mask)
