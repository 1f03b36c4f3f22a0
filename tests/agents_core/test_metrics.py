"""Metrics of agents, against counting."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from zoo.agents.metrics import (
    AttackSuccessRate,
    CostPerTask,
    ExactMatch,
    NormalizedGain,
    PairedLift,
    PassAtK,
    PassHatK,
    SuccessRate,
    TokenF1,
    TokensPerTask,
    mcnemar,
    token_f1,
    wilson_interval,
)
from zoo.errors import ZooError


def test_wilson_interval_is_scipys():
    expected = binomtest(7, 20).proportion_ci(0.95, method="wilson")
    found = wilson_interval(7, 20)
    assert found == pytest.approx((0.35, expected.low, expected.high), rel=1e-9)
    assert wilson_interval(0, 0)[1:] == (0, 1)


def test_success_by_family():
    metric = SuccessRate(["look", "heat", "cool"])
    metric.update(torch.tensor([True, False, True]), torch.tensor([0, 0, 1]))
    metric.update(torch.tensor([True]), torch.tensor([0]))
    found = {k: float(v) for k, v in metric.compute().items()}
    assert found == pytest.approx({"success": 0.75, "success_look": 2 / 3, "success_heat": 1.0})
    assert metric.intervals()["look"].value == pytest.approx(2 / 3)
    plain = SuccessRate()
    plain.update(torch.tensor([1.0, 0.0]))
    assert float(plain.compute()) == 0.5
    attacked = AttackSuccessRate(["mail"])
    attacked.update(torch.tensor([True]), torch.tensor([0]))
    assert set(attacked.compute()) == {"attack_success", "attack_success_mail"}


@pytest.mark.parametrize("k", [1, 2, 4])
def test_pass_at_and_hat_k_are_shares_of_choices(k):
    tries = torch.tensor([[1, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0]]).bool()
    some, every = PassAtK(k), PassHatK(k)
    some.update(tries)
    every.update(tries)
    chosen = [list(combinations(row, k)) for row in tries.tolist()]
    assert float(some.compute()) == pytest.approx(
        np.mean([np.mean([any(c) for c in row]) for row in chosen])
    )
    assert float(every.compute()) == pytest.approx(
        np.mean([np.mean([all(c) for c in row]) for row in chosen])
    )


def test_more_tries_are_asked_for_than_there_are():
    with pytest.raises(ZooError, match=r"k=5\) needs so many tries, not 4"):
        PassAtK(5).update(torch.zeros(2, 4))


def test_means_per_task():
    for cls in (TokensPerTask, CostPerTask):
        metric = cls()
        metric.update(torch.tensor([10, 20]))
        metric.update(torch.tensor([60]))
        assert float(metric.compute()) == 30


def test_normalised_gain():
    metric = NormalizedGain()
    metric.update(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.0]))
    metric.update(torch.tensor([0.0, 0.0]), torch.tensor([0.0, 1.0]))
    assert float(metric.compute()) == pytest.approx((0.75 - 0.25) / 0.75)
    full = NormalizedGain()
    full.update(torch.ones(2), torch.ones(2))
    assert float(full.compute()) == 0


def test_mcnemar_counts_changed_outcomes_only():
    before = np.array([1, 1, 0, 0, 0, 0, 0, 1], dtype=bool)
    after = np.array([1, 0, 1, 1, 1, 1, 1, 1], dtype=bool)
    assert mcnemar(before, after) == pytest.approx(2 * (1 + 6) / 2**6)
    assert mcnemar(before, before) == 1


def test_paired_lift_and_its_interval():
    rng = np.random.default_rng(0)
    before = torch.from_numpy((rng.random(400) < 0.3).astype(np.float32))
    after = torch.maximum(before, torch.from_numpy((rng.random(400) < 0.2).astype(np.float32)))
    metric = PairedLift(2000)
    metric.update(before[:150], after[:150], torch.zeros(150, dtype=torch.long))
    metric.update(before[150:], after[150:], torch.ones(250, dtype=torch.long))
    found = {k: float(v) for k, v in metric.compute().items()}
    difference = (after - before).numpy()
    assert found["lift"] == pytest.approx(difference.mean())
    half = 1.96 * difference.std() / 20
    assert found["lift_low"] == pytest.approx(found["lift"] - half, abs=0.01)
    assert found["lift_high"] == pytest.approx(found["lift"] + half, abs=0.01)
    assert found["p"] < 1e-6
    with pytest.raises(ZooError, match="3 and 2 tasks"):
        PairedLift().update(torch.zeros(3), torch.zeros(2))


def test_answers_to_questions():
    metric, f1 = ExactMatch(), TokenF1()
    answers, references = ["The Cat!", "a dog"], [["cat"], ["dog house", "cow"]]
    metric.update(answers, references)
    f1.update(answers, references)
    assert float(metric.compute()) == 0.5
    assert float(f1.compute()) == pytest.approx((1 + 2 / 3) / 2)
    assert token_f1("", "cat") == 0
    with pytest.raises(ZooError, match="Row 1 has no reference"):
        metric.update(["a", "b"], [["a"], []])
