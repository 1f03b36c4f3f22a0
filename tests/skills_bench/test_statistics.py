"""The statistics against hand calculations, and against benchmarks whose truth is known."""

import numpy as np
import pytest
import torch

from zoo.agents.metrics import Interval, bootstrap_means
from zoo.errors import ZooError
from zoo.skills_bench.network import binomial_loss, cross_validate
from zoo.skills_bench.statistics import (
    domain_lifts,
    holm,
    paired_lift,
    rates,
    regressions,
    sign_flip,
    variance_components,
)


def simulate(p0, p1, trials, seed, agents=1):
    """Outcomes of agents with known rates. Shapes: (T,) each, to (T, A, S)."""
    rng = np.random.default_rng(seed)
    shape = len(p0), agents, trials
    return {
        "before": (rng.random(shape) < p0[:, None, None]).astype(float),
        "after": (rng.random(shape) < p1[:, None, None]).astype(float),
    }


def unpaired_interval(before, after, domain, seed=0):
    """The interval that one would get from two sets of tasks, in points."""
    p0, p1 = rates(before), rates(after)
    means = bootstrap_means(p1, domain, seed=seed) - bootstrap_means(p0, domain, seed=seed + 1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(*(100 * float(x) for x in (p1.mean() - p0.mean(), low, high)))


def test_lift_by_hand():
    before = np.array([[[1, 0]], [[0, 0]], [[1, 1]]], dtype=float)  # rates .5, 0, 1
    after = np.array([[[1, 1]], [[1, 0]], [[1, 1]]], dtype=float)  # rates 1, .5, 1
    found = paired_lift(before, after, np.zeros(3, int))
    assert found.value == pytest.approx(100 / 3)
    assert (found.before, found.after) == pytest.approx((0.5, 5 / 6))
    assert found.gain == pytest.approx((1 / 3) / 0.5)
    assert found.low < found.value < found.high
    assert found.p == 1  # majority: the first task alone changes, which a coin does too


def test_agents_count_alike_whatever_their_trials():
    outcomes = np.array([[[1, 1, 1, 1], [0, np.nan, np.nan, np.nan]]])
    assert rates(outcomes) == pytest.approx([0.5])


def test_trials_that_one_condition_alone_left_out_are_refused():
    before = np.zeros((2, 1, 2))
    after = before.copy()
    after[0, 0, 0] = np.nan
    with pytest.raises(ZooError, match="leave pairs out"):
        paired_lift(before, after, np.zeros(2, int))


def test_bootstrap_has_the_variance_of_the_mean():
    """With three tasks a stratum too, where drawing three of three would give two thirds."""
    rng = np.random.default_rng(0)
    values, stratum = rng.normal(size=24), np.repeat(np.arange(8), 3)
    means = bootstrap_means(values, stratum, 40_000)
    expected = sum(values[stratum == s].var(ddof=1) / 3 for s in range(8)) / 64
    assert means.mean() == pytest.approx(values.mean(), abs=0.01)
    assert means.var() == pytest.approx(expected, rel=0.05)
    single = bootstrap_means(values[:4], np.array([0, 0, 1, 2]), 20_000)
    assert single.var() > 0
    assert (bootstrap_means(values[:1], np.zeros(1, int), 5) == values[0]).all()


def planted(rng, tasks=24):
    """Rates of tasks from a population with a lift of 15 points."""
    p0 = rng.uniform(0.1, 0.7, tasks)
    return p0, np.clip(p0 + rng.normal(0.15, 0.12, tasks), 0, 1)


def test_interval_covers_the_planted_lift():
    """Check (i) of the specification: 200 benchmarks of 24 tasks x 5 trials."""
    rng = np.random.default_rng(0)
    truth = 100 * np.mean([np.diff(planted(rng), axis=0).mean() for _ in range(4000)])
    domain = np.repeat(np.arange(8), 3)
    covered = 0
    for number in range(200):
        found = simulate(*planted(rng), trials=5, seed=number)
        lift = paired_lift(found["before"], found["after"], domain, seed=number)
        covered += lift.low <= truth <= lift.high
    assert 0.90 <= covered / 200 <= 0.98


def test_pairing_saves_most_of_the_width():
    """Check (ii): where tasks differ much."""
    rng = np.random.default_rng(1)
    p0 = np.concatenate([rng.uniform(0, 0.1, 12), rng.uniform(0.8, 0.9, 12)])
    found = simulate(p0, p0 + 0.1, trials=5, seed=0)
    domain = np.zeros(24, int)
    paired = paired_lift(found["before"], found["after"], domain)
    apart = unpaired_interval(found["before"], found["after"], domain)
    assert apart.value == pytest.approx(paired.value)
    assert (paired.high - paired.low) <= 0.7 * (apart.high - apart.low)


def test_sign_flips_and_holm_by_hand():
    assert sign_flip(np.ones(4)) == pytest.approx(2 / 16)
    assert sign_flip(np.array([1.0, -1.0])) == 1
    assert sign_flip(np.ones(20)) < 0.001
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_domains_are_told_apart():
    before = np.zeros((6, 3, 5))
    after = before.copy()
    after[:3] = 1
    found = domain_lifts(before, after, ["a"] * 3 + ["b"] * 3)
    assert found["a"] == pytest.approx((100, 2 * 2 / 2**9))
    assert found["b"] == pytest.approx((0, 1))


def test_regressions_are_those_that_chance_does_not_explain():
    before, after = np.zeros((10, 3, 5)), np.zeros((10, 3, 5))
    before[0] = 1  # falls from 15 to 0
    before[1, 0, 0] = 1  # falls by one trial
    found = regressions(before, after, [f"t{i}" for i in range(10)])
    assert found.fallen == ("t0", "t1")
    assert found.significant == ("t0",)


def test_variance_components_are_found():
    rng = np.random.default_rng(0)
    shape = 60, 40, 10
    task, agent = rng.normal(0, 2, (60, 1, 1)), rng.normal(0, 1, (1, 40, 1))
    values = task + agent + rng.normal(0, 0.5, (60, 40, 1)) + rng.normal(0, 1, shape)
    found = variance_components(values)
    truth = {"task": 4, "agent": 1, "task_agent": 0.25, "seed": 1}
    for name, value in truth.items():
        assert found[name] == pytest.approx(value / 6.25, rel=0.35, abs=0.01), name
    assert variance_components(values[:1]) == {}


def test_binomial_loss_by_hand():
    logits = torch.zeros(2, 2, requires_grad=True)
    successes, trials = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[2.0, 2.0], [0, 0]])
    loss = binomial_loss(logits, successes, trials)
    assert float(loss.detach()) == pytest.approx(np.log(2))
    loss.backward()
    # Of (1 of 2 at p = .5) and (2 of 2 at p = .5): gradients 0 and -1 of four trials.
    assert logits.grad == pytest.approx(torch.tensor([[0.0, -0.25], [0.0, 0.0]]))
    assert float(binomial_loss(logits.detach(), torch.zeros(2, 2), torch.zeros(2, 2))) == 0


def test_forecasts_learn_what_there_is_to_learn():
    """Tasks of one domain whose rate is a function of a feature: means can't see it."""
    rng = torch.Generator().manual_seed(0)
    x = torch.zeros(60, 15)
    x[:, 0] = torch.randn(60, generator=rng)
    p = torch.stack([torch.sigmoid(2 * x[:, 0]), torch.sigmoid(2 * x[:, 0] + 1)], 1)
    trials = torch.full((60, 2), 10.0)
    names = [f"t{i // 3}" for i in range(60)]
    x[:, 0] = x[:, 0].reshape(20, 3).mean(1).repeat_interleave(3)
    p = torch.stack([torch.sigmoid(2 * x[:, 0]), torch.sigmoid(2 * x[:, 0] + 1)], 1)
    y = torch.binomial(trials, p, generator=rng)
    found = cross_validate(x, y, trials, names, ["d"] * 60)
    assert found["model"] < found["domain"] - 0.02
    noise = torch.binomial(trials, torch.full((60, 2), 0.5), generator=rng)
    blind = cross_validate(x, noise, trials, names, ["d"] * 60)
    assert blind["model"] > blind["domain"] - 0.01  # nothing to learn, so nothing is gained
