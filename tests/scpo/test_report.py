"""The table of the baselines: errors against known values."""

import pytest
import torch

from tests.agents_core.test_rollout import make_policy
from zoo.agents.losses import skill_sums
from zoo.agents.rollout import Sequences
from zoo.scpo import SkillHistory
from zoo.scpo.report import (
    MEASURED,
    UNBIASED,
    Rollouts,
    baseline_errors,
    errors_in_training,
    gradient_scatter,
)

LEVEL = torch.linspace(0.1, 0.9, 4)
SKILLS = torch.arange(64) % 4
VALUE = (LEVEL[SKILLS] + 0.1 * torch.sin(torch.arange(64.0))).clamp(0, 1)


def rollouts(count=48, seed=0):
    torch.manual_seed(seed)
    rewards = (torch.rand(64, count) < VALUE[:, None]).float()
    ids = torch.randint(5, 20, (64 * count, 4))
    mask = torch.ones_like(ids)
    actions = mask.bool()
    actions[:, :2] = False
    sequences = Sequences(ids, mask, actions, torch.zeros(ids.shape), torch.arange(len(ids)))
    return Rollouts(rewards, SKILLS, torch.arange(64), sequences)


def test_errors_are_those_against_the_true_values():
    """RLOO's is the variance of one other rollout; the value's own noise is taken off."""
    found = baseline_errors(rollouts(), 16, 2, 4, {"": None})
    variance = float((VALUE * (1 - VALUE)).mean())
    assert found["rloo"] == pytest.approx(variance, rel=0.1)
    assert found["grpo"] == pytest.approx(variance / 2, rel=0.15)
    assert found["scpo"] < found["global"] < found["rloo"]


def test_errors_in_training_agree_without_knowing_the_values():
    torch.manual_seed(0)
    history, sums, exact = SkillHistory(4), torch.zeros(5), 0.0
    for _ in range(300):
        rows = torch.randperm(64)[:32]
        rewards = (torch.rand(32, 2) < VALUE[rows, None]).float()
        sums += errors_in_training(rewards, SKILLS[rows], 4, history.prior())
        history.update(skill_sums(rewards, SKILLS[rows], 4))
        other = rewards.flip(1)  # RLOO's baseline, of two rollouts
        exact += float((other - VALUE[rows, None]).square().mean()) / 300
    found = dict(zip(MEASURED, (sums[:-1] / sums[-1]).tolist(), strict=True))
    assert found["rloo"] == pytest.approx(exact, rel=0.05)
    assert found["scpo"] < found["scpo_alone"] < found["global"] < found["rloo"]


def test_joining_orders_prompts_and_drops_those_that_two_processes_had():
    whole = rollouts(34)
    parts = []
    for rows in (torch.tensor([5, 3]), torch.tensor([3, 9])):
        flat = (rows[:, None] * 34 + torch.arange(34)).flatten()
        parts.append(Rollouts(whole.rewards[rows], SKILLS[rows], rows, whole.sequences[flat]))
    joined = Rollouts.join(parts, 0)
    assert joined.index.tolist() == [3, 5, 9]
    assert torch.equal(joined.rewards, whole.rewards[[3, 5, 9]])
    assert torch.equal(joined.sequences.ids[34:68], whole.sequences.ids[5 * 34 : 6 * 34])


def test_better_baselines_scatter_less_and_the_policy_stays_as_it_was():
    policy = make_policy()
    before = [p.clone() for p in policy.parameters()]
    found = gradient_scatter(policy, rollouts(), 16, 2, 4, None)
    assert set(found) == set(UNBIASED)
    assert 0 < found["scpo"] < found["rloo"]
    for weight, was in zip(policy.parameters(), before, strict=True):
        assert torch.equal(weight, was)
        assert weight.requires_grad
        assert weight.grad is None
