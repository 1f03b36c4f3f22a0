"""The path problem: quadrature, the network's family, and both oracles."""

import math

import pytest
import torch

from tests.sudo_ot.training import DELTA, RATIO, REACH, train_path
from zoo.sudo_ot import GrowthPenalty, PathNet, reference_path, wfr_cost
from zoo.sudo_ot.path import chebyshev_knots, mean_exp, path_cost


def random_pairs(count, seed=0):
    rng = torch.Generator().manual_seed(seed)
    d = REACH * torch.rand(count, generator=rng)
    return d, RATIO * (2 * torch.rand(count, generator=rng) - 1)


class Geodesic(PathNet):
    """The family's member that is the WFR geodesic: c = cos(d / (2 delta)) and n = 0."""

    def __init__(self):
        super().__init__(REACH, RATIO)
        place = self.max_distance

        class Angle(torch.nn.Module):
            def forward(self, scaled):
                d = (scaled[:, :1] + 1) / 2 * place
                return torch.logit(torch.cos(d / (2 * DELTA)) / 2)

        self.angle = Angle()


def test_mean_of_exp_over_a_segment():
    a = torch.tensor([0.0, 1.0, -3.0, 2.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([1.0, 1.0, 4.0, 2.0 + 1e-3], dtype=torch.float64)
    t = torch.linspace(0, 1, 20001, dtype=torch.float64)[:, None]
    brute = torch.trapezoid((a.detach() + t * (b - a.detach())).exp(), t, dim=0)
    assert torch.allclose(mean_exp(a, b).detach(), brute, rtol=1e-7)
    assert torch.autograd.gradcheck(lambda x: mean_exp(x, b), a)


def test_cost_of_a_curve_agrees_with_brute_force():
    knots = chebyshev_knots()
    assert knots[0] == 0
    assert knots[-1] == 1
    log_mass = torch.sin(3 * knots) + knots  # linear between the knots from here on
    penalty = GrowthPenalty.asymmetric(DELTA)
    transport, growth = path_cost(log_mass[None], torch.tensor([1.3]).double(), penalty, knots)
    t = torch.linspace(0, 1, 200_001, dtype=torch.float64)
    piece = (torch.searchsorted(knots, t, right=True) - 1).clamp(0, len(knots) - 2)
    slope = (log_mass.diff() / knots.diff())[piece]
    fine = log_mass[piece] + slope * (t - knots[piece])
    assert transport.item() == pytest.approx(
        1.3**2 / 2 / torch.trapezoid((-fine).exp(), t).item(), rel=1e-6
    )
    brute = torch.trapezoid(fine.exp() * penalty(slope), t).item()
    assert growth.sum().item() == pytest.approx(brute, rel=1e-3)


def test_the_geodesic_of_wfr_is_in_the_family():
    d, r = random_pairs(500)
    net = Geodesic().double()
    h = net.cost(d.double(), r.double(), GrowthPenalty.quadratic(DELTA))
    exact = wfr_cost(d.double(), r.double(), DELTA)
    excess = (h - exact) / (1 + r.double().exp())
    assert excess.min() > -1e-12  # an upper bound, since the quadrature's curve is itself possible
    assert excess.max() < 2e-3 * 2 * DELTA**2


def test_place_and_rate_on_the_geodesic_are_those_of_the_cone():
    """On the cone the geodesic is a chord: its angle and radius are known at each time."""
    d, r = random_pairs(300)
    d, r = d.double(), r.double()
    t = torch.rand(300, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    point = Geodesic().double().point(t, d, r)
    angle = d / (2 * DELTA)
    x = (1 - t) + t * (r / 2).exp() * torch.cos(angle)
    y = t * (r / 2).exp() * torch.sin(angle)
    assert torch.allclose(point.log_mass, (x**2 + y**2).log(), atol=1e-9)
    place = torch.atan2(y, x) / angle
    assert (point.place - place).abs().max() < 0.02
    dx, dy = -1 + (r / 2).exp() * torch.cos(angle), (r / 2).exp() * torch.sin(angle)
    rate = 2 * (x * dx + y * dy) / (x**2 + y**2)
    assert torch.allclose(point.rate, rate, atol=1e-8)
    speed = (x * dy - y * dx) / (x**2 + y**2) / angle
    assert ((point.speed - speed) / speed).abs().max() < 0.04  # I(1) by quadrature


def test_boundary_values_hold_for_any_weights():
    torch.manual_seed(0)
    net = PathNet(REACH, RATIO)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    d, r = random_pairs(50)
    start, end = net.point(torch.zeros(50), d, r), net.point(torch.ones(50), d, r)
    assert start.log_mass.abs().max() < 1e-5
    assert torch.allclose(end.log_mass, r, atol=1e-5)
    assert start.place.abs().max() < 1e-5
    assert torch.allclose(end.place, torch.ones(50), atol=1e-5)


def test_rate_is_the_derivative_of_the_log_mass():
    torch.manual_seed(0)
    net = PathNet(REACH, RATIO).double()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    d, r = (v.double() for v in random_pairs(40))
    t = torch.linspace(0.01, 0.99, 40, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(net(t[:, None], d, r).sum(), t)
    with torch.inference_mode():
        point = net.point(t.detach().clone(), d, r)
    assert torch.allclose(point.rate, expected, atol=1e-10)
    assert torch.allclose(point.log_mass, net(t[:, None], d, r)[:, 0].detach())


def test_momentum_is_constant():
    """m x' does not change along the path, whatever the penalty."""
    net = train_path("asymmetric", steps=1)
    t = torch.linspace(0, 1, 20)
    point = net.point(t, torch.full((20,), 2.0), torch.full((20,), 1.0))
    momentum = point.log_mass.exp() * point.speed
    assert momentum.std() < 1e-5 * momentum.mean()


def test_reference_solver_finds_the_analytic_action():
    d, r = random_pairs(40)
    found = reference_path(d, r, GrowthPenalty.quadratic(DELTA))
    exact = wfr_cost(d.double(), r.double(), DELTA)
    assert ((found.cost - exact) / exact).abs().max() < 1e-3
    assert torch.allclose(found.transport + found.growth.sum(dim=1), found.cost)
    assert torch.equal(found.log_mass[:, -1], r.double())


def test_c1_learned_path_is_the_wfr_geodesic():
    """Half of the default's steps: the bounds are those that are asked for."""
    net = train_path("quadratic", steps=400)
    d, r = random_pairs(4000)
    with torch.no_grad():
        h = net.cost(d, r, GrowthPenalty.quadratic(DELTA)).double()
    exact = wfr_cost(d.double(), r.double(), DELTA)
    excess = (h - exact) / exact
    assert excess.mean() <= 0.005
    assert excess.quantile(0.95) <= 0.015
    assert ((h - exact) / (1 + r.double().exp())).min() >= -1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "share"),
    [("power 1.5", 0.85), ("power 4", 0.8), ("asymmetric", 1), ("entropic", 1), ("callable", 0.95)],
)
def test_learned_paths_are_within_two_percent_of_the_reference(name, share):
    """On the mean for each penalty, and on all pairs but a share for each.

    Measured after the default's 2400 steps: 92, 86, 100, 100 and 99 % of 200 pairs. The others are
    near the ends of the range; the worst 5 % of the two powers' are 5 and 9 % above the reference
    or more. A smooth network bends a path as the geodesic of the quadratic penalty bends, and
    theirs has corners.
    """
    net = train_path(name, steps=2400)
    d, r = random_pairs(200)
    penalty = net.trained_for
    with torch.no_grad():
        h = net.cost(d, r, penalty).double()
    reference = reference_path(d, r, penalty).cost
    # Where the cost is next to 0 a relative bound says nothing: there it is absolute.
    allowed = 1.02 * reference + 0.002 * DELTA**2 * (1 + r.double().exp())
    assert (h <= allowed).double().mean() >= share
    assert ((h - reference) / reference).mean() <= 0.02


@pytest.mark.parametrize("steps", [10, 20, 40])
def test_c4_a_convex_penalty_spreads_growth_over_time(steps):
    d, r = torch.ones(1), torch.tensor([math.log(3)])
    found = reference_path(d, r, GrowthPenalty.quadratic(1.0), steps=steps)
    assert found.cost.item() == pytest.approx(1.9199, abs=1e-3)
    assert found.transport.item() == pytest.approx(0.8304, abs=2e-3)
    assert found.growth.max() / found.growth.sum() < 1.4 / steps


def test_c4_a_concave_penalty_lets_growth_and_transport_separate():
    d, r = torch.ones(1), torch.tensor([math.log(3)])
    psi = GrowthPenalty(lambda g: (g.square() + 1e-24) ** 0.25, "root")
    totals = []
    for steps in (10, 20, 40):
        found = reference_path(d, r, psi, steps=steps, starts=4)
        totals.append(found.cost.item())
        assert found.transport.item() < 1e-4  # it moves when it weighs nothing
        assert found.log_mass.min() < -15
        assert found.growth.max() / found.growth.sum() > 0.4  # dies and is born in bursts
    assert totals[0] > 1.25 * totals[1] > 1.25**2 * totals[2]
    assert totals[2] < 0.1 * 1.9199
