"""The distillation's gradient is that of the reverse KL: exact, by summing over a categorical."""

import itertools

import pytest
import torch

from zoo.agents.losses import aggregate
from zoo.skill_sd.loss import distillation, leave_one_out

STUDENT = torch.tensor([0.3, -0.5, 1.1, 0.2, -1.4])
TEACHER = torch.tensor([1.2, 0.1, -0.7, 0.9, 0.0]).log_softmax(0)
OLD = torch.tensor([0.1, -0.2, 0.8, 0.5, -1.0]).log_softmax(0)


def gradient_of_kl():
    logits = STUDENT.clone().requires_grad_(True)
    student = logits.log_softmax(0)
    kl = (student.exp() * (student - TEACHER)).sum()
    return torch.autograd.grad(kl, logits)[0]


def expected_gradient(form, behaviour, pairs=False, limit=1e6):
    """Mean over all tokens, or pairs of tokens of two rows, by the policy that samples them."""
    logits = STUDENT.clone().requires_grad_(True)
    total = torch.zeros(())
    for tokens in itertools.product(range(5), repeat=2 if pairs else 1):
        chosen = torch.tensor(tokens)[:, None]
        ls = logits.log_softmax(0)[chosen]
        mask = torch.ones_like(chosen, dtype=torch.bool)
        values = distillation(ls, behaviour[chosen], TEACHER[chosen], mask, form, limit)
        total = total + behaviour[chosen].sum().exp() * aggregate(values, mask)
    return torch.autograd.grad(total, logits)[0]


@pytest.mark.parametrize("behaviour", [STUDENT.log_softmax(0), OLD])
def test_importance_weighted_k3_has_the_gradient_of_the_reverse_kl(behaviour):
    torch.testing.assert_close(expected_gradient("iw_k3", behaviour), gradient_of_kl())


@pytest.mark.parametrize("behaviour", [STUDENT.log_softmax(0), OLD])
def test_the_centred_form_has_it_too_and_its_baseline_adds_no_bias(behaviour):
    found = expected_gradient("centred", behaviour, pairs=True)
    torch.testing.assert_close(found, gradient_of_kl())


def test_k3_alone_has_another():
    found = expected_gradient("k3", STUDENT.log_softmax(0))
    assert (found - gradient_of_kl()).abs().max() > 0.1


def test_the_centred_form_scatters_less():
    """Rows of one distribution whose teacher is everywhere unlikely: a baseline takes that off."""
    generator = torch.Generator().manual_seed(0)
    logits = STUDENT.clone().requires_grad_(True)
    tokens = torch.multinomial(STUDENT.softmax(0), 8 * 400, True, generator=generator)
    found = {}
    for form in ("iw_k3", "centred"):
        gradients = []
        for part in tokens.view(400, 8, 1):
            ls = logits.log_softmax(0)[part]
            mask = torch.ones_like(part, dtype=torch.bool)
            values = distillation(ls, ls.detach(), TEACHER[part] - 3, mask, form)
            gradients.append(torch.autograd.grad(aggregate(values, mask), logits)[0])
        found[form] = torch.stack(gradients).var(dim=0).sum()
    assert found["centred"] < 0.2 * found["iw_k3"]


def test_mean_of_the_others_by_hand():
    values = torch.tensor([[9.0, 1.0, 2.0, 9.0], [3.0, 9.0, 4.0, 6.0]])
    mask = torch.tensor([[0, 1, 1, 0], [1, 0, 1, 1]]).bool()
    expected = torch.tensor([[0.0, 3.0, 4.0, 0.0], [1.0, 0.0, 2.0, 0.0]])
    assert torch.equal(leave_one_out(values, mask), expected)


def test_beyond_its_limit_rho_is_a_constant():
    ls = torch.zeros(1, 1, requires_grad=True)
    lo, lt, mask = torch.full((1, 1), -3.0), torch.full((1, 1), -0.5), torch.ones(1, 1).bool()
    value = distillation(ls, lo, lt, mask, "iw_k3", 5.0)
    k3 = torch.tensor(-0.5).exp() + 0.5 - 1
    torch.testing.assert_close(value, (5 * k3).view(1, 1))
    (gradient,) = torch.autograd.grad(value.sum(), ls)
    torch.testing.assert_close(gradient, (5 * (1 - torch.tensor(-0.5).exp())).view(1, 1))
    centred = distillation(ls, lo, lt, mask, "centred", 5.0)
    assert float(torch.autograd.grad(centred.sum(), ls)[0]) == 0


@pytest.mark.parametrize("form", ["iw_k3", "centred", "k3"])
def test_what_no_teacher_judged_has_neither_value_nor_gradient(form):
    ls = torch.randn(2, 3, requires_grad=True)
    lo, lt = torch.randn(2, 3), torch.full((2, 3), float("-inf"))
    mask = torch.zeros(2, 3).bool()
    values = distillation(ls, lo, lt, mask, form)
    assert torch.equal(values, torch.zeros(2, 3))
    (gradient,) = torch.autograd.grad(values.sum(), ls, allow_unused=True)
    assert gradient is None or torch.equal(gradient, torch.zeros(2, 3))
