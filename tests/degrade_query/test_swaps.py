"""Counterfactual swaps and their loss."""

import math

import pytest
import torch

from zoo.degrade_query.swaps import (
    draw_swaps,
    info_nce,
    is_observed,
    target_weights,
    unit_scale,
)

PROTEINS = 8  # 0 unknown; 1-5 targets, 6 and 7 ligases
TARGET_COUNT = torch.tensor([0, 16, 1, 4, 2, 3, 0, 0])
E3_COUNT = torch.tensor([0, 0, 0, 0, 0, 0, 20, 6])
FEATURES = torch.randn(PROTEINS, 5, generator=torch.Generator().manual_seed(0))


def codes(*tuples):
    return torch.tensor(sorted((m * PROTEINS + t) * PROTEINS + e for m, t, e in tuples))


def test_recorded_tuples_are_found_and_others_are_not():
    observed = codes((0, 1, 6), (2, 3, 7))
    found = is_observed(
        torch.tensor([[0], [2]]), torch.arange(1, 6).expand(2, -1), torch.tensor(6), observed, 8
    )
    assert found.tolist() == [[True, False, False, False, False], [False] * 5]
    assert is_observed(*(torch.tensor([x]) for x in (9, 5, 7)), observed, 8).tolist() == [False]


def test_frequencies_and_hard_negatives():
    easy = target_weights(TARGET_COUNT, FEATURES, 0.0)
    expected = TARGET_COUNT.double().pow(0.75)
    expected[3] = 0
    torch.testing.assert_close(easy[3].double(), expected / expected.sum())
    hard = target_weights(TARGET_COUNT, FEATURES, 1.0)
    unit = torch.nn.functional.normalize(FEATURES, dim=1)
    for target in range(1, 6):
        others = [i for i in range(1, 6) if i != target]
        nearest = max(others, key=lambda i: float(unit[target] @ unit[i]))
        assert hard[target].nonzero()[:, 0].tolist() == [nearest]  # a fifth of five targets
    half = target_weights(TARGET_COUNT, FEATURES, 0.5)
    torch.testing.assert_close(half, 0.5 * easy + 0.5 * hard)
    torch.testing.assert_close(half.sum(dim=1), torch.ones(PROTEINS))
    assert target_weights(TARGET_COUNT, 0 * FEATURES, 1.0).equal(easy)  # nobody is near


@pytest.mark.parametrize("kind", ["target", "e3", "both"])
def test_swaps_change_what_they_say_and_skip_recorded_tuples(kind):
    torch.manual_seed(0)
    batch = 200
    molecule = torch.arange(batch)
    target = torch.randint(1, 6, (batch,))
    e3 = torch.randint(6, 8, (batch,))
    also = [(m, t, e) for m in range(0, batch, 2) for t in range(1, 6) for e in (6, 7) if t != 5]
    observed = codes(*zip(molecule.tolist(), target.tolist(), e3.tolist(), strict=True), *also)
    weights = target_weights(TARGET_COUNT, FEATURES, 0.5)
    swaps = draw_swaps(kind, molecule, target, e3, weights, E3_COUNT, observed.unique(), 4)
    assert swaps.target.shape == (batch, 2 if kind == "e3" else 4)
    recorded = set(observed.tolist())
    assert swaps.valid.any()
    for b in range(batch):
        for t, e, valid in zip(*(x[b].tolist() for x in swaps), strict=True):
            changed = (t != target[b], e != e3[b])
            code = (b * PROTEINS + t) * PROTEINS + e
            if valid:
                assert changed == {"target": (1, 0), "e3": (0, 1), "both": (1, 1)}[kind]
                assert TARGET_COUNT[t] > 0
                assert E3_COUNT[e] > 0
                assert code not in recorded
    if kind == "target":  # even molecules are recorded with all targets but the fifth
        assert not swaps.valid[::2][swaps.target[::2] != 5].any()
    if kind == "e3":  # there is one other ligase, so one of the two places stays empty
        assert swaps.valid[1::2].sum(dim=1).eq(1).all()


def test_one_target_alone_has_no_swaps():
    count = torch.tensor([0, 5, 0, 0, 0, 0, 0, 0])
    one = torch.ones(3, dtype=torch.long)
    weights = target_weights(count, FEATURES, 0.5)
    observed = codes((1, 1, 6))
    swaps = draw_swaps("target", one, one, 6 * one, weights, E3_COUNT, observed, 4)
    assert not swaps.valid.any()


def test_loss_by_hand_and_its_limits():
    positive = torch.tensor([0.5, -0.2])
    negative = torch.tensor([[0.1, 0.9], [0.3, 0.0]])
    valid = torch.tensor([[True, False], [True, True]])
    t = 0.1
    first = math.log(1 + math.exp((0.1 - 0.5) / t))
    second = math.log(1 + math.exp((0.3 + 0.2) / t) + math.exp((0.0 + 0.2) / t))
    found = info_nce(positive, negative, valid, torch.tensor(t))
    assert found.item() == pytest.approx((first + second) / 2, rel=1e-5)
    assert info_nce(positive, negative, valid & False, torch.tensor(t)) == 0
    equal = info_nce(
        positive, positive[:, None].expand(-1, 3), torch.ones(2, 3).bool(), torch.tensor(t)
    )
    assert equal.item() == pytest.approx(math.log(4), rel=1e-5)
    assert unit_scale(torch.tensor([[1.0, -1.0], [1.0, 1.0]])) == 0
    assert unit_scale(torch.zeros(2, 4)) == 1
