"""Cost table and network, semi-couplings, and POT as their oracle."""

import math

import numpy as np
import pytest
import torch

from tests.sudo_ot.training import DELTA, RATIO, REACH
from zoo import ZooError
from zoo.datamodules.cell_snapshots import gene_circuit
from zoo.reproducible import generator
from zoo.sudo_ot import CostNet, CostTable, pot_coupling, semi_coupling, wfr_cost
from zoo.sudo_ot.cost import lower_envelope
from zoo.sudo_ot.coupling import blocks, couple_in_blocks


@pytest.fixture(scope="module")
def table():
    """Filled with the closed form, so that the coupling is tested alone."""
    found = CostTable(REACH, RATIO)
    found.fill(lambda d, r: wfr_cost(d.double(), r.double(), DELTA))
    return found


def clouds(n=40, m=50, seed=0):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=rng) * 0.5
    y = torch.randn(m, 2, generator=rng) * 0.5 + torch.tensor([1.0, 0.3])
    return x, y, torch.ones(n), torch.ones(m)


def test_lower_envelope_is_convex_and_touches():
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(40))
    y = rng.random(40)
    found = lower_envelope(x, y)
    assert (found <= y + 1e-12).all()
    slopes = np.diff(found) / np.diff(x)
    assert (np.diff(slopes) > -1e-9).all()
    assert np.isclose(found, y).sum() >= 3
    line = 2 * x + 1
    assert np.allclose(lower_envelope(x, line), line)


def test_table_interpolates_the_cost(table):
    rng = torch.Generator().manual_seed(0)
    d = REACH * torch.rand(5000, generator=rng)
    r = RATIO * (2 * torch.rand(5000, generator=rng) - 1)
    alpha, beta = table.marginal(table.rows(d), r)
    exact = wfr_cost(d.double(), r.double(), DELTA)
    error = (alpha + beta * r.exp() - exact).abs() / (1 + r.exp())
    assert error.max() < 5e-4 * 2 * DELTA**2


def test_table_gives_derivatives_in_both_masses(table):
    d, r = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.01, -1.0, 2.0])
    alpha, beta = table.marginal(table.rows(d), r)
    c = torch.cos(d / (2 * DELTA))
    assert torch.allclose(alpha, 2 * DELTA**2 * (1 - (r / 2).exp() * c), atol=0.05)
    assert torch.allclose(beta, 2 * DELTA**2 * (1 - (-r / 2).exp() * c), atol=0.05)


def test_table_is_jointly_convex_in_both_masses():
    """Also of a cost that is not: the envelope mends it."""
    found = CostTable(REACH, RATIO)
    found.fill(lambda d, r: wfr_cost(d, r, DELTA) + torch.sin(5 * r).abs())
    rng = torch.Generator().manual_seed(0)
    d = REACH * torch.rand(4000, generator=rng)

    def cost(m0, m1):
        alpha, beta = found.marginal(found.rows(d), (m1 / m0).log())
        return alpha * m0 + beta * m1

    a, b, c, e = (torch.rand(4000, generator=rng) + 1e-3 for _ in range(4))
    between = cost((a + c) / 2, (b + e) / 2)
    assert (between <= (cost(a, b) + cost(c, e)) / 2 + 1e-4).all()


def test_vanishing_masses_are_no_trouble(table):
    d, r = torch.full((4,), 1.0), torch.tensor([-80.0, 80.0, -1e4, 1e4])
    alpha, beta = table.marginal(table.rows(d), r)
    assert alpha.isfinite().all()
    assert beta.isfinite().all()
    assert alpha[0].item() == pytest.approx(2 * DELTA**2, rel=0.1)  # all of it dies


def test_network_gives_the_derivatives_of_its_own_cost():
    torch.manual_seed(0)
    net = CostNet(REACH, RATIO)
    d, r = torch.rand(20) * REACH, torch.randn(20)
    alpha, beta = net.marginal(net.rows(d), r)
    assert torch.allclose(alpha + beta * r.exp(), net(d, r).detach(), atol=1e-4)
    m0, m1 = torch.ones(20, requires_grad=True), r.exp().requires_grad_()
    slopes = torch.autograd.grad((m0 * net(d, (m1 / m0).log())).sum(), (m0, m1))
    assert torch.allclose(alpha, slopes[0], atol=1e-4)
    assert torch.allclose(beta, slopes[1], atol=1e-4)


def test_constraints_hold_and_cost_is_that_of_the_coupling(table):
    x, y, a, b = clouds()
    a = a * torch.linspace(0.5, 2, 40)
    found = semi_coupling(x, y, a, b, table, iterations=30)
    g0, g1 = found.log_g0.exp(), found.log_g1.exp()
    assert torch.allclose(g0.sum(dim=1), a, atol=1e-5)
    assert torch.allclose(g1.sum(dim=0), b, atol=1e-5)
    d = torch.cdist(x, y)
    ratio = (found.log_g1 - found.log_g0).clamp(-40, 40)
    cost = (g0.double() * wfr_cost(d.double(), ratio.double(), DELTA)).sum()
    assert found.cost == pytest.approx(cost.item(), rel=1e-2)


def test_pot_gives_the_closed_form_of_two_atoms():
    x, y = torch.zeros(1, 2), torch.tensor([[1.2, 0.0]])
    found = pot_coupling(x, y, torch.ones(1), torch.tensor([2.5]), DELTA)
    exact = wfr_cost(torch.tensor(1.2), torch.tensor(math.log(2.5)), DELTA)
    assert found.cost == pytest.approx(exact.item(), rel=1e-5)


def test_two_atoms_cost_the_closed_form(table):
    x, y = torch.zeros(1, 2), torch.tensor([[1.2, 0.0]])
    found = semi_coupling(x, y, torch.ones(1), torch.tensor([2.5]), table, 5)
    exact = wfr_cost(torch.tensor(1.2), torch.tensor(math.log(2.5)), DELTA)
    assert found.cost == pytest.approx(exact.item(), rel=2e-3)


def test_identical_clouds_cost_next_to_nothing(table):
    x, _, a, _ = clouds()
    assert semi_coupling(x, x, a, a, table, 300).cost < 0.01 * 2 * DELTA**2 * len(x)


def test_each_cell_keeps_its_nearest_neighbour(table):
    x, y, a, b = clouds()
    x[0] = 100.0
    found = semi_coupling(x, y, a, b, table, 10)
    assert found.log_g0.exp().sum(dim=1)[0].item() == pytest.approx(1.0, abs=1e-5)
    nearest = torch.cdist(x[:1], y).argmin()
    assert found.log_g0[0].argmax() == nearest


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_c2_cost_is_that_of_pot(seed, table):
    """The first interval of the circuit, whose two populations move: a third of its cells."""
    data = gene_circuit(100, seed)
    x, y = (torch.from_numpy(data.x[data.time == t]) for t in data.times[:2])
    sides = x, y, torch.ones(len(x)), torch.ones(len(y))
    pot, ours = pot_coupling(*sides, DELTA), semi_coupling(*sides, table, 300)
    assert ours.cost <= 1.015 * pot.cost
    assert ours.cost >= 0.999 * pot.cost


def test_drawn_pairs_follow_g0(table):
    x, y, a, b = clouds(5, 6)
    found = semi_coupling(x, y, a * torch.arange(1, 6), b, table, 10)
    torch.manual_seed(0)
    rows, columns, ratio = found.draw(40_000)
    counts = torch.zeros(5, 6).index_put_((rows, columns), torch.ones(40_000), accumulate=True)
    share = found.log_g0.exp() / found.log_g0.exp().sum()
    assert (counts / 40_000 - share).abs().max() < 0.01
    assert torch.equal(ratio, (found.log_g1 - found.log_g0)[rows, columns])


def test_blocks_cover_all_cells_once_and_keep_the_ratio_of_masses(table):
    x, y, a, b = clouds(45, 60)
    parts = blocks(45, 60, 20, generator(0))
    assert sorted(torch.cat([rows for rows, _ in parts]).tolist()) == list(range(45))
    assert sorted(torch.cat([columns for _, columns in parts]).tolist()) == list(range(60))
    assert max(len(columns) for _, columns in parts) <= 20
    found = couple_in_blocks([(x, y, a, b)], table, 5, 20)[0]
    for block in found:
        grown = block.log_g1.exp().sum() / block.log_g0.exp().sum()
        assert grown.item() == pytest.approx(60 / 45, rel=1e-4)
    again = couple_in_blocks([(x, y, a, b)], table, 5, 20)[0]
    assert all(torch.equal(p.log_g0, q.log_g0) for p, q in zip(found, again, strict=True))


def test_lopsided_blocks_are_refused():
    with pytest.raises(ZooError, match="some would be empty"):
        blocks(3, 100, 10, generator(0))
