"""Error rates of biometric decisions against plain counting."""

import pytest
import torch

from zoo.metrics import AUROC, HTER, EqualErrorRate, EqualErrorThreshold, equal_error_point


def draws(count=200, seed=0):
    rng = torch.Generator().manual_seed(seed)
    labels = (torch.rand(count, generator=rng) < 0.4).long()
    scores = (0.3 * labels + torch.rand(count, generator=rng)).clamp(0, 1.3) / 1.3
    return (scores * 50).round() / 50, labels  # with ties


def rates(scores, labels, threshold):
    """FAR and FRR by counting."""
    pairs = list(zip(scores.tolist(), labels.tolist(), strict=True))
    attacks = [s for s, y in pairs if y == 0]
    genuine = [s for s, y in pairs if y == 1]
    far = sum(s >= threshold for s in attacks) / len(attacks)
    return far, sum(s < threshold for s in genuine) / len(genuine)


@pytest.mark.parametrize("seed", range(4))
def test_the_equal_error_point_is_where_the_rates_are_nearest(seed):
    scores, labels = draws(seed=seed)
    eer, threshold = equal_error_point(scores, labels)
    far, frr = rates(scores.double(), labels, float(threshold))
    assert float(eer) == pytest.approx((far + frr) / 2)
    others = [rates(scores, labels, t / 100 + 0.005) for t in range(-1, 102)]
    assert abs(far - frr) <= min(abs(a - b) for a, b in others) + 1e-9


def test_by_hand():
    scores = torch.tensor([0.1, 0.4, 0.6, 0.9])
    labels = torch.tensor([0, 1, 0, 1])
    metric = HTER()
    metric.update(scores[:2], labels[:2], 0.5)
    metric.update(scores[2:], labels[2:], torch.tensor([0.7, 0.7]))
    assert metric.compute() == pytest.approx(0.25)  # one of two live faces is rejected
    eer, threshold = equal_error_point(scores, labels)
    assert (float(eer), float(threshold)) == pytest.approx((0.5, 0.5))


def test_separable_scores_have_no_error_and_a_threshold_between_them():
    scores, labels = torch.tensor([0.1, 0.2, 0.8, 0.9]), torch.tensor([0, 0, 1, 1])
    rate, threshold = EqualErrorRate(), EqualErrorThreshold()
    for metric in (rate, threshold):
        metric.update(scores[:3], labels[:3])
        metric.update(scores[3:], labels[3:])
    assert rate.compute() == 0
    assert threshold.compute() == pytest.approx(0.5)


def test_scores_turned_round_err_always():
    scores, labels = torch.tensor([0.9, 0.8, 0.2, 0.1]), torch.tensor([0, 0, 1, 1])
    assert equal_error_point(scores, labels)[0] == 1


def test_one_class_has_no_rate_to_equal():
    metric = EqualErrorRate()
    metric.update(torch.rand(3), torch.ones(3))
    assert metric.compute() == 0
    auroc = AUROC()
    auroc.update(torch.rand(3), torch.ones(3, dtype=torch.long))
    assert auroc.compute() == 0.5
    hter = HTER()
    hter.update(torch.tensor([0.1, 0.9]), torch.tensor([1, 1]))
    assert hter.compute() == pytest.approx(0.25)


def test_auroc_is_the_chance_that_a_live_face_scores_higher():
    scores, labels = draws(60)
    metric = AUROC()
    metric.update(scores, labels)
    live, attack = scores[labels == 1], scores[labels == 0]
    wins = (live[:, None] > attack).float() + 0.5 * (live[:, None] == attack).float()
    assert metric.compute() == pytest.approx(float(wins.mean()), abs=1e-6)


def test_a_shift_of_the_scores_shows_at_the_source_threshold_only():
    scores, labels = torch.tensor([0.1, 0.2, 0.4, 0.5]), torch.tensor([0, 0, 1, 1])
    source, honest, own = EqualErrorThreshold(), HTER(), EqualErrorRate()
    source.update(scores, labels)
    honest.update(scores + 0.4, labels, source.compute())
    own.update(scores + 0.4, labels)
    assert honest.compute() == 0.5  # all are accepted
    assert own.compute() == 0
