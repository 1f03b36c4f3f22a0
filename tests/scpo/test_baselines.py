"""Baselines: against naive loops, unbiased on a bandit, and better where skills differ."""

import pytest
import torch

from zoo.agents.losses import (
    SkillSums,
    check_rewards,
    coupled_baseline,
    shrinkage_baseline,
    skill_sums,
)
from zoo.agents.losses.baselines import BETWEEN_FLOOR, BORROWED, WITHIN_FLOOR, Prior
from zoo.errors import ZooError
from zoo.scpo import SkillHistory, estimate_baselines
from zoo.scpo.history import WARM


def naive_coupled(rewards, skills, n_skills, h, mass, c, gain=None):
    """The same by loops over prompts, from the rewards of the other prompts alone."""
    count, n = rewards.shape
    found = torch.zeros_like(rewards)
    for i in range(count):
        others = [x for x in range(count) if x != i]
        means = {x: float(rewards[x].mean()) for x in others}
        scatter = {x: float((rewards[x] - rewards[x].mean()).square().sum()) for x in others}
        mu = sum(means.values()) / len(others)
        members = {k: [x for x in others if int(skills[x]) == k] for k in range(n_skills)}

        def apart(k, means=means, members=members):
            inside = [means[x] for x in members[k]]
            return sum((m - sum(inside) / len(inside)) ** 2 for m in inside) if inside else 0.0

        k = int(skills[i])
        degrees = {k: max(0, len(members[k]) - 1) for k in members}
        pooled_s2 = max(sum(scatter.values()) / (len(others) * (n - 1)), WITHIN_FLOOR)
        inner = sum(scatter[x] for x in members[k])
        s2 = (inner + BORROWED * pooled_s2) / (len(members[k]) * (n - 1) + BORROWED)
        pooled = sum(apart(j) for j in members) / max(sum(degrees.values()), 1e-6)
        spread = (apart(k) + BORROWED * pooled) / (degrees[k] + BORROWED)
        tau2 = max(spread - s2 / n, BETWEEN_FLOOR)
        v = s2 / (n - 1)
        shrink = v / (v + tau2)
        target = torch.tensor(
            [
                (float(h[j]) + sum(means[x] for x in members[j]) + c * mu)
                / (float(mass[j]) + len(members[j]) + c)
                for j in range(n_skills)
            ]
        )
        if gain is not None:
            # Skills other than the prompt's own are the batch's; only its own leaves it out.
            target = mu + gain @ (target - mu)
        goal = float(target[k])
        for j in range(n):
            rest = (float(rewards[i].sum()) - float(rewards[i, j])) / (n - 1)
            found[i, j] = (1 - shrink) * rest + shrink * goal
    return found


@pytest.fixture
def batch():
    torch.manual_seed(0)
    skills = torch.randint(0, 3, (12,))
    rewards = (torch.rand(12, 3) < torch.tensor([0.2, 0.5, 0.9])[skills][:, None]).float()
    return rewards, skills


def test_coupled_baseline_equals_a_naive_loop(batch):
    rewards, skills = batch
    zeros = torch.zeros(3)
    expected = naive_coupled(rewards, skills, 3, zeros, zeros, 0.5)
    torch.testing.assert_close(coupled_baseline(rewards, skills, 3), expected, atol=1e-5, rtol=0)


def test_history_and_covariance_equal_a_naive_loop(batch):
    rewards, skills = batch
    h, mass = torch.tensor([1.0, 0.0, 5.0]), torch.tensor([4.0, 0.0, 6.0])
    prior = Prior(h, mass)
    expected = naive_coupled(rewards, skills, 3, h, mass, 0.5)
    found = coupled_baseline(rewards, skills, 3, prior)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)

    covariance = torch.tensor([[0.05, 0.01, 0.0], [0.01, 0.05, -0.02], [0.0, -0.02, 0.05]])
    noise = torch.tensor([0.1, 0.2, 0.05])
    weight = torch.bincount(skills, minlength=3)
    gain = covariance @ torch.linalg.inv(covariance + torch.diag(noise / (mass + weight + 0.5)))
    expected = naive_coupled(rewards, skills, 3, h, mass, 0.5, gain)
    found = coupled_baseline(rewards, skills, 3, Prior(h, mass, covariance, noise))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_global_shrinkage_is_one_skill_without_pseudo_count(batch):
    rewards, skills = batch
    zero = torch.zeros(1)
    expected = naive_coupled(rewards, torch.zeros_like(skills), 1, zero, zero, 0.0)
    torch.testing.assert_close(shrinkage_baseline(rewards), expected, atol=1e-5, rtol=0)


def test_one_hot_weights_are_labels(batch):
    rewards, skills = batch
    soft = torch.nn.functional.one_hot(skills, 3).float()
    covariance = 0.05 * torch.eye(3) + 0.01
    prior = Prior(torch.ones(3), torch.full((3,), 2.0), covariance, torch.full((3,), 0.1))
    for p in (None, Prior(prior.total, prior.weight), prior):
        hard = coupled_baseline(rewards, skills, 3, p)
        torch.testing.assert_close(coupled_baseline(rewards, soft, 3, p), hard, atol=1e-5, rtol=0)


def test_by_hand_two_prompts():
    """Two prompts of one skill: nothing but the floors is known of their variance."""
    rewards = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    found = shrinkage_baseline(rewards)
    # Prompt 0 sees prompt 1, whose rewards are equal: of 17 degrees of freedom 16 are borrowed, at
    # the floor 1e-3, so s2 = 0.016 / 17; tau2 = 2e-3 (floor), l = 0.32, mu = 1.
    torch.testing.assert_close(found[0], torch.tensor([0.32, 1.0]), atol=1e-4, rtol=0)
    # Prompt 1 sees prompt 0: s2 = 0.5, l = 0.5 / 0.502, mu = 0.5.
    near = 1 - 0.5 * (0.5 / 0.502)
    torch.testing.assert_close(found[1], torch.full((2,), near), atol=1e-4, rtol=0)


@pytest.mark.parametrize("coupling", ["none", "group", "correlated"])
@pytest.mark.parametrize("soft", [False, True])
def test_policy_gradient_is_unbiased_on_a_two_armed_bandit(coupling, soft):
    """E[sum A grad log pi] against the exact gradient: 10^5 draws, 3 standard errors.

    Six prompts, three rollouts each; the policy chooses arm 1 with probability sigmoid(theta_i),
    and arm a of prompt i pays with probability q[i, a].
    """
    torch.manual_seed(0)
    draws, skills = 100_000, torch.tensor([0, 0, 1, 1, 1, 2])
    theta = torch.tensor([-1.0, 0.5, 0.0, 1.0, -0.3, 0.8])
    q = torch.rand(6, 2)
    p = theta.sigmoid()
    exact = p * (1 - p) * (q[:, 1] - q[:, 0])
    arm = (torch.rand(draws, 6, 3) < p[:, None]).long()
    pays = q.expand(draws, 6, 2).gather(2, arm)
    rewards = (torch.rand(draws, 6, 3) < pays).float()
    prior = None
    if coupling != "none":
        history = SkillHistory(3, coupling=coupling)
        for step in range(WARM + 2):
            history.update(skill_sums(rewards[step], skills, 3))
        prior = history.prior()
        assert (prior.covariance is not None) == (coupling == "correlated")
    weights = skills
    if soft:
        weights = (2 * torch.nn.functional.one_hot(skills, 3) + torch.rand(6, 3)).softmax(1)
    baseline = coupled_baseline(rewards, weights, 3, prior)
    score = arm - p[:, None]
    each = ((rewards - baseline) * score).mean(dim=2)  # (draws, 6)
    error = each.std(dim=0) / draws**0.5
    assert ((each.mean(dim=0) - exact).abs() < 3 * error).all()
    # And the group's mean, which counts the rollout itself, shows that the test can fail.
    own = (rewards - rewards.mean(dim=2, keepdim=True)) * score
    biased = own.mean(dim=2)
    error = biased.std(dim=0) / draws**0.5
    assert ((biased.mean(dim=0) - exact).abs() > 3 * error).any()


def test_a_prompts_own_rewards_enter_its_baseline_only_through_its_other_rollouts(batch):
    rewards, skills = batch
    history = SkillHistory(3)
    for _ in range(WARM + 1):
        history.update(skill_sums(rewards, skills, 3))
    rewards = rewards.clone().requires_grad_(True)
    found = coupled_baseline(rewards, skills, 3, history.prior())
    for i in range(len(rewards)):
        for j in range(3):
            (gradient,) = torch.autograd.grad(found[i, j], rewards, retain_graph=True)
            assert gradient[i, j] == 0


def simulate(labels, steps=150, seed=0, shuffled=False):
    """Errors over steps of 32 prompts of 8 skills, two rollouts each, at a fixed policy."""
    torch.manual_seed(seed)
    level = torch.linspace(0.1, 0.9, 8)
    skills = torch.arange(512) % 8
    value = (level[skills] + 0.1 * torch.randn(512)).clamp(0, 1)
    given = skills if labels == "true" else torch.randint(0, 8, (512,))
    history = SkillHistory(8)
    errors = {}
    for _ in range(steps):
        rows = torch.randperm(512)[:32]
        rewards = (torch.rand(32, 2) < value[rows, None]).float()
        found = {name: estimate_baselines(rewards, baseline=name) for name in ("rloo", "global")}
        found["scpo"] = estimate_baselines(rewards, given[rows], n_skills=8, prior=history.prior())
        history.update(skill_sums(rewards, given[rows], 8))
        for name, baseline in found.items():
            off = (baseline - value[rows, None]).square().mean()
            errors[name] = errors.get(name, 0) + float(off) / steps
    return errors


def test_skills_that_differ_make_better_baselines():
    errors = simulate("true")
    assert errors["scpo"] <= 0.7 * errors["global"]
    assert errors["scpo"] <= 0.4 * errors["rloo"]


def test_random_labels_fall_back_to_global_shrinkage():
    errors = simulate("random")
    assert errors["scpo"] == pytest.approx(errors["global"], rel=0.1)


def test_masked_rollouts_are_as_if_they_were_not_there(batch):
    rewards, skills = batch
    padded = torch.cat([rewards, torch.full((12, 2), 0.7)], dim=1)
    mask = torch.cat([torch.ones(12, 3), torch.zeros(12, 2)], dim=1).bool()
    found = coupled_baseline(padded, skills, 3, mask=mask)
    torch.testing.assert_close(found[:, :3], coupled_baseline(rewards, skills, 3))
    assert (found[:, 3:] == 0).all()


def test_sums_over_processes_are_those_of_one(batch):
    """Two halves that are given each other's sums, as an all-reduce does."""
    rewards, skills = batch
    whole = coupled_baseline(rewards, skills, 3)
    halves = [(rewards[:5], skills[:5]), (rewards[5:], skills[5:])]
    total = sum(torch.stack(skill_sums(r, s, 3)) for r, s in halves)
    found = torch.cat([coupled_baseline(r, s, 3, reduce=lambda _: total) for r, s in halves])
    torch.testing.assert_close(found, whole, atol=1e-6, rtol=0)


def test_a_single_prompt_has_its_own_rollouts_or_the_past():
    rewards, skills = torch.tensor([[1.0, 0.0]]), torch.tensor([1])
    torch.testing.assert_close(coupled_baseline(rewards, skills, 2), torch.tensor([[0.0, 1.0]]))
    prior = Prior(torch.tensor([0.0, 6.0]), torch.tensor([0.0, 8.0]))
    alone = coupled_baseline(rewards[:, :1], skills, 2, prior, allow_single=True)
    assert float(alone) == pytest.approx((6 + 0.5 * 0.75) / 8.5)


def test_group_size_one_needs_leave():
    rewards = torch.tensor([[1.0], [0.0]])
    for name in ("rloo", "global", "scpo"):
        with pytest.raises(ZooError, match=r"Prompt 0 has one rollout.*allow_single"):
            estimate_baselines(rewards, torch.tensor([0, 0]), name)
    found = estimate_baselines(rewards, torch.tensor([0, 0]), allow_single=True)
    torch.testing.assert_close(found, torch.tensor([[0.0], [1.0]]))


@pytest.mark.parametrize(
    ("rewards", "pattern"),
    [
        ([[0.0, 1.0], [float("nan"), 1.0]], "Row 1 of the rewards has a NaN"),
        ([[0.0, 1.0], [0.5, 2.0]], r"Row 1 of the rewards is \(0.5, 2\).*clip_rewards"),
    ],
)
def test_bad_rewards_name_their_row(rewards, pattern):
    with pytest.raises(ZooError, match=pattern):
        estimate_baselines(torch.tensor(rewards), baseline="rloo")


def test_clipping_rewards_is_a_choice():
    assert check_rewards(torch.tensor([[2.0, -1.0]]), clip=True).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize(
    ("skills", "options", "pattern"),
    [
        (None, {}, "needs the skills of 2 prompts: got none"),
        (torch.tensor([0]), {}, "got 1"),
        (torch.tensor([0, 5]), {"n_skills": 3}, "Row 1 has the skill 5: there are 3"),
        (torch.ones(2, 2) / 2, {"n_skills": 3}, "2 columns: there are 3"),
    ],
)
def test_bad_skills_are_one_sentence(skills, options, pattern):
    with pytest.raises(ZooError, match=pattern):
        estimate_baselines(torch.rand(2, 2), skills, **options)
    with pytest.raises(ZooError, match=r"Did you mean 'scpo'"):
        estimate_baselines(torch.rand(2, 2), torch.tensor([0, 1]), "scop")


# -- history -------------------------------------------------------------------------------------


def test_history_decays_and_is_used_before_it_is_updated(batch):
    rewards, skills = batch
    history = SkillHistory(3, decay=0.5, coupling="group")
    assert history.prior() is None
    sums = skill_sums(rewards, skills, 3)
    history.update(sums)
    history.update(sums)
    prior = history.prior()
    torch.testing.assert_close(prior.weight, 1.5 * sums.weight)
    torch.testing.assert_close(prior.total, 1.5 * sums.total)
    assert SkillHistory(3, coupling="none").prior() is None


def test_correlations_are_found_and_need_ten_steps():
    """Two skills rise and fall together, a third goes against them."""
    torch.manual_seed(0)
    history = SkillHistory(3)
    for step in range(60):
        wave = 0.3 * torch.sin(torch.tensor(step / 2.0))
        mean = 0.5 + wave * torch.tensor([1.0, 1.0, -1.0])
        one = torch.full((3,), 20.0)
        sums = SkillSums(one, one * mean, one * (mean**2 + 0.01), one * 0.1, one, one / 2)
        history.update(sums)
        assert (history.prior().covariance is None) == (step + 1 < WARM)
    found = history.correlation()
    assert found[0, 1] > 0.05 > -0.05 > found[0, 2]
    assert torch.linalg.eigvalsh(found).min() > 0
    assert history.steps == 60


def test_drift_guard_forgets_a_skill_that_has_changed():
    def sums(mean):
        one = torch.full((2,), 20.0)
        means = torch.tensor([mean, 0.5])
        return SkillSums(one, one * means, one * (means**2 + 0.01), one * 0.1, one, one / 2)

    for guard in (True, False):
        history = SkillHistory(2, decay=0.7, coupling="group", drift_guard=guard)
        for _ in range(5):
            history.update(sums(0.2))
        before = history.weight.clone()
        history.update(sums(0.9))
        kept = (history.weight - 20) / before
        expected = [0.7 / 4, 0.7] if guard else [0.7, 0.7]
        torch.testing.assert_close(kept, torch.tensor(expected))
