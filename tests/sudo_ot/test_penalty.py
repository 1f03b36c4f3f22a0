"""Penalties of growth: values, slopes, and what is refused."""

import math

import pytest
import torch

from zoo import ZooError
from zoo.sudo_ot import GrowthPenalty, SudoOT

DELTA = 1.5
ALL = {
    "quadratic": GrowthPenalty.quadratic(DELTA),
    "power 1.5": GrowthPenalty.power(DELTA, 1.5),
    "power 4": GrowthPenalty.power(DELTA, 4.0),
    "asymmetric": GrowthPenalty.asymmetric(DELTA, 1.0, 10.0),
    "entropic": GrowthPenalty.entropic(DELTA, 1.0),
    "callable": GrowthPenalty(lambda g: torch.cosh(g) - 1),
}


@pytest.mark.parametrize("name", ALL)
def test_is_convex_with_its_minimum_at_zero_and_has_finite_slopes(name):
    penalty = ALL[name].check_convex()
    g = torch.linspace(-8, 8, 801, dtype=torch.float64, requires_grad=True)
    values = penalty(g)
    (slope,) = torch.autograd.grad(values.sum(), g)
    assert slope.isfinite().all()
    assert (slope.diff() > -1e-9).all()
    assert values.detach().argmin() == 400
    assert abs(float(values[400].detach())) < 1e-6


def test_values_worked_out_by_hand():
    g = torch.tensor([-2.0, -0.5, 0.0, 1.0, 3.0], dtype=torch.float64)
    expected = {
        "quadratic": 2.25 / 2 * g**2,
        "power 4": 2.25 / 4 * g**4,
        "asymmetric": 2.25 / 2 * torch.tensor([40, 2.5, 0, 1, 9.0]),
    }
    for name, value in expected.items():
        assert torch.allclose(ALL[name](g), value.double(), atol=1e-8), name
    one = float(ALL["entropic"](torch.tensor(1.0, dtype=torch.float64)))
    assert one == pytest.approx(2.25 * (2 * math.log(2) - 1))


def test_entropic_goes_on_smoothly_below_minus_half_the_rate():
    rate = 0.8
    penalty = GrowthPenalty.entropic(1.0, rate)
    g = torch.tensor([-rate / 2 - 1e-6, -rate / 2 + 1e-6], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(penalty(g).sum(), g, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), g)
    assert slope[0].item() == pytest.approx(-math.log(2), abs=1e-5)
    assert slope.detach().diff().abs().item() < 1e-5
    assert bend[0].item() == pytest.approx(2 / rate)
    assert bend[1].item() == pytest.approx(2 / rate, rel=1e-4)


def test_small_rates_make_entropic_about_quadratic():
    g = torch.tensor(1e-3, dtype=torch.float64)
    assert float(GrowthPenalty.entropic(2.0, 0.5)(g)) == pytest.approx(4 * 1e-6 / 2 / 0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("psi", "where"),
    [
        (lambda g: g.abs().sqrt(), r"-7\.99 and 7\.99"),
        (lambda g: torch.where(g > 3, 3 * g, g.square()), r"3\.0"),
        (lambda g: (g - 1).square(), "must be 0"),
        (lambda g: torch.where(g < -4, torch.inf, g.square()), "not finite"),
    ],
)
def test_what_is_not_convex_is_refused_and_says_where(psi, where):
    with pytest.raises(ZooError, match=where):
        GrowthPenalty(psi).check_convex()


def test_a_concave_penalty_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="growth and transport separate"):
        GrowthPenalty(lambda g: g.abs().sqrt()).check_convex()


def test_hardly_superlinear_warns():
    with pytest.warns(UserWarning, match="hardly superlinear"):
        GrowthPenalty.power(1.0, 1.1).check_convex()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"penalty": "quadratik"}, "Did you mean 'quadratic'"),
        ({"delta": -1.0}, "delta=-1"),
        ({"penalty": "power", "power": 1.0}, "power=1"),
        ({"death": 0.0}, "death=0"),
        ({"penalty": "entropic", "rate": 0.0}, "rate=0"),
        ({"coupling": "pot"}, "quadratic penalty only"),
        ({"cost": "tabel"}, "Did you mean 'table'"),
        ({"path_steps": 0}, "path_steps=0"),
        ({"ema": 1.0}, "ema=1"),
        ({"dim": 0}, "dim=0"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ZooError, match=words):
        SudoOT(**arguments)
