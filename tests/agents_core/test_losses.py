"""Losses against figures worked out by hand, and against the gradients that they stand for."""

import math

import pytest
import torch

from zoo.agents.losses import (
    aggregate,
    clipped_surrogate,
    entropy_bonus,
    grpo_advantage,
    iw_reverse_kl,
    kl_k3,
    rloo_advantage,
)
from zoo.errors import ZooError


def test_grpo_advantage_by_hand():
    rewards = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    found = grpo_advantage(rewards)
    std = math.sqrt((4 / 9 + 1 / 9 + 1 / 9) / 2)
    expected = torch.tensor([[2 / 3, -1 / 3, -1 / 3], [0, 0, 0]]) / std
    torch.testing.assert_close(found.values, expected, atol=1e-5, rtol=0)
    assert int(found.zero_groups) == 1
    plain = grpo_advantage(rewards, "none").values
    torch.testing.assert_close(plain[0], torch.tensor([2 / 3, -1 / 3, -1 / 3]))
    assert grpo_advantage(torch.zeros(2, 4)).values.abs().max() == 0


def test_masked_rollouts_do_not_count_in_a_group():
    rewards = torch.tensor([[1.0, 0.0, 9.0]])
    mask = torch.tensor([[True, True, False]])
    expected = grpo_advantage(rewards[:, :2]).values
    torch.testing.assert_close(grpo_advantage(rewards, mask=mask).values[:, :2], expected)
    assert grpo_advantage(rewards, mask=mask).values[0, 2] == 0


def test_rloo_advantage_by_hand():
    found = rloo_advantage(torch.tensor([[1.0, 0.0, 0.5]])).values
    torch.testing.assert_close(found, torch.tensor([[0.75, -0.75, 0.0]]))


def test_unknown_normalisation_is_named():
    with pytest.raises(ZooError, match=r"normalise='sd'.*std"):
        grpo_advantage(torch.zeros(1, 2), "sd")


def test_surrogate_and_its_gradient_by_hand():
    """Ratios 1.5 (clipped for A > 0), 0.5 (clipped for A < 0) and 1.1 (free)."""
    ratio = torch.tensor([[1.5, 0.5], [1.1, 7.0]])
    lo = torch.full((2, 2), -1.0)
    ls = (lo + ratio.log()).requires_grad_(True)
    mask = torch.tensor([[True, True], [True, False]])
    advantage = torch.tensor([[2.0, -1.0], [3.0, 5.0]])
    found = clipped_surrogate(ls, lo, advantage, mask)
    expected = -(1.2 * 2 + -0.8 * 1 + 1.1 * 3) / 3
    assert float(found.loss.detach()) == pytest.approx(expected, rel=1e-6)
    assert float(found.clipped) == pytest.approx(2 / 3)
    found.loss.backward()
    torch.testing.assert_close(ls.grad, torch.tensor([[0.0, 0.0], [-1.1 * 3 / 3, 0.0]]))


def test_a_worse_ratio_is_never_clipped():
    """min() keeps the gradient where the ratio has moved against the advantage."""
    ls = torch.tensor([[math.log(0.5), math.log(2.0)]]).requires_grad_(True)
    loss = clipped_surrogate(
        ls, torch.zeros(1, 2), torch.tensor([[1.0, -1.0]]), torch.ones(1, 2).bool()
    ).loss
    loss.backward()
    torch.testing.assert_close(ls.grad, torch.tensor([[-0.25, 1.0]]))


@pytest.mark.parametrize(
    ("how", "expected"), [("token", 10 / 4), ("sequence", (1 + 3) / 2), ("group", (10 / 4) / 1)]
)
def test_aggregations_by_hand(how, expected):
    values = torch.tensor([[1.0, 9.0, 9.0], [2.0, 3.0, 4.0]])
    mask = torch.tensor([[1, 0, 0], [1, 1, 1]]).bool()
    found = aggregate(values, mask, how, torch.tensor([0, 0]))
    assert float(found) == pytest.approx(expected)


def test_groups_count_alike():
    values = torch.tensor([[1.0, 1.0], [2.0, 2.0], [6.0, 0.0]])
    mask = torch.tensor([[1, 1], [1, 1], [1, 0]]).bool()
    found = aggregate(values, mask, "group", torch.tensor([0, 0, 1]))
    assert float(found) == pytest.approx((1.5 + 6) / 2)


def test_where_nothing_counts_the_loss_is_zero_and_still_has_a_gradient():
    ls = torch.randn(2, 3, requires_grad=True)
    mask = torch.zeros(2, 3, dtype=torch.bool)
    for how in ("token", "sequence"):
        loss = clipped_surrogate(ls, torch.full((2, 3), 1e4), torch.ones(2), mask, how=how).loss
        (gradient,) = torch.autograd.grad(loss, ls)
        assert float(loss.detach()) == 0
        assert gradient.abs().max() == 0


def test_masked_tokens_get_no_gradient_even_if_their_ratio_overflows():
    ls = torch.tensor([[0.0, 500.0]], requires_grad=True)
    mask = torch.tensor([[True, False]])
    clipped_surrogate(ls, torch.zeros(1, 2), torch.ones(1), mask).loss.backward()
    assert ls.grad.isfinite().all()
    assert ls.grad[0, 1] == 0


def test_k3_is_zero_at_equality_and_by_hand():
    ls, lr = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, -2.0]])
    torch.testing.assert_close(kl_k3(ls, lr), torch.tensor([[0.0, math.exp(-1)]]))
    assert kl_k3(torch.zeros(1, 1), torch.full((1, 1), 1e6)).isfinite().all()


def test_iw_reverse_kl_has_the_reverse_kl_gradient_and_k3_has_not():
    """On five symbols: the mean over samples against the analytic gradient, in standard errors."""
    torch.manual_seed(0)
    theta = torch.tensor([0.5, -0.2, 0.1, 0.9, -1.0], requires_grad=True)
    teacher = torch.tensor([1.0, 0.4, -0.6, 0.0, 0.3]).log_softmax(0)
    behaviour = torch.tensor([0.2, 0.1, 0.0, 0.5, -0.4]).log_softmax(0)
    p = theta.log_softmax(0)
    (exact,) = torch.autograd.grad((p.exp() * (p - teacher)).sum(), theta)

    def mean_gradient(form, source):
        samples = torch.multinomial(source.exp(), 200_000, replacement=True)
        # The gradient of a sample is that of its symbol: five gradients, weighted by counts.
        rows = []
        for symbol in range(5):
            ls = theta.log_softmax(0)[symbol].view(1, 1)
            value = form(ls, source[symbol].view(1, 1), teacher[symbol].view(1, 1))
            rows.append(torch.autograd.grad(value.sum(), theta)[0])
        each = torch.stack(rows)[samples]
        return each.mean(0), each.std(0) / len(each) ** 0.5

    mean, error = mean_gradient(iw_reverse_kl, behaviour)
    assert ((mean - exact).abs() < 3 * error).all()
    own = theta.detach().log_softmax(0)
    mean, error = mean_gradient(lambda ls, lo, lt: kl_k3(ls, lt), own)
    assert ((mean - exact).abs() > 3 * error).any()


def test_limit_makes_large_ratios_constants():
    ls = torch.tensor([[2.0]], requires_grad=True)
    value = iw_reverse_kl(ls, torch.tensor([[-2.0]]), torch.tensor([[1.0]]), limit=5.0)
    (gradient,) = torch.autograd.grad(value.sum(), ls)
    assert float(value.detach()) == pytest.approx(5 * math.exp(-1), rel=1e-5)
    assert float(gradient) == pytest.approx(5 * (1 - math.exp(-1)), rel=1e-5)


def test_entropy_bonus_is_the_negated_mean():
    entropy = torch.tensor([[1.0, 3.0]])
    assert float(entropy_bonus(entropy, torch.tensor([[True, True]]))) == -2
