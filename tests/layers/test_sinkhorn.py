"""The batched Sinkhorn divergence against geomloss, POT and its own mathematics."""

import numpy as np
import pytest
import torch

from zoo.layers.sinkhorn import cost_matrix, sinkhorn_divergence, sinkhorn_potentials

EPS = 0.1


def clouds(batch=6, n=9, m=12, d=3, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    a, b = draw(batch, n).softmax(-1), draw(batch, m).softmax(-1)
    return draw(batch, n, d), a, draw(batch, m, d) + 0.5, b


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_geomloss(dtype):
    geomloss = pytest.importorskip("geomloss")
    x, a, y, b = (t.to(dtype) for t in clouds())
    # Its temperature is blur ** p for the cost |x - y|^p / p.
    loss = geomloss.SamplesLoss(
        "sinkhorn", p=2, blur=EPS**0.5, scaling=0.9995, debias=True, backend="tensorized"
    )
    ours = sinkhorn_divergence(x, a, y, b, EPS, max_iters=1000)
    torch.testing.assert_close(ours, loss(a, x, b, y).to(dtype), atol=1e-4, rtol=0)


def test_equals_pot():
    import ot

    x, a, y, b = clouds()

    def entropic(p, q, cost):
        plan = ot.bregman.sinkhorn(p, q, cost, EPS, stopThr=1e-10, numItermax=5000, warn=False)
        product = np.outer(p, q)
        divergence = (plan * np.log(plan / product)).sum() - plan.sum() + product.sum()
        return (plan * cost).sum() + EPS * divergence

    found = sinkhorn_divergence(x, a, y, b, EPS, max_iters=1000, tol=1e-9)
    for k in range(2):
        p, q = a[k].numpy(), b[k].numpy()
        terms = (p, q, x[k], y[k]), (p, p, x[k], x[k]), (q, q, y[k], y[k])
        xy, xx, yy = (entropic(s, t, cost_matrix(u, v).numpy()) for s, t, u, v in terms)
        assert float(found[k]) == pytest.approx(xy - (xx + yy) / 2, abs=1e-4)


def test_is_symmetric_and_zero_only_between_equal_clouds():
    x, a, y, b = clouds()
    there = sinkhorn_divergence(x, a, y, b, EPS, max_iters=1000, tol=1e-9)
    back = sinkhorn_divergence(y, b, x, a, EPS, max_iters=1000, tol=1e-9)
    torch.testing.assert_close(there, back, atol=1e-6, rtol=0)
    assert (there > 0.05).all()
    same = sinkhorn_divergence(x, a, x, a, EPS, max_iters=2000, tol=1e-9)
    assert same.abs().max() < 1e-5  # a plan near the identity converges slowly


def test_pairs_broadcast_to_all_pairs():
    x, a, y, b = clouds(batch=3)
    every = sinkhorn_divergence(x[:, None], a[:, None], y[None], b[None], EPS)
    assert every.shape == (3, 3)
    torch.testing.assert_close(every.diagonal(), sinkhorn_divergence(x, a, y, b, EPS))
    one = sinkhorn_divergence(x[0], None, y[0], None, EPS)
    assert one.shape == ()


@pytest.mark.parametrize("place", [0.0, 3.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_padding_changes_nothing(place, dtype):
    x, a, y, b = (t.to(dtype) for t in clouds())
    wide = [torch.cat([t, torch.full_like(t[:, :2], place)], 1) for t in (x, y)]
    weights = [torch.nn.functional.pad(t, (0, 2)) for t in (a, b)]
    padded = sinkhorn_divergence(wide[0], weights[0], wide[1], weights[1], EPS)
    torch.testing.assert_close(padded, sinkhorn_divergence(x, a, y, b, EPS), atol=2e-4, rtol=0)


@pytest.mark.parametrize("which", ["x", "a", "y", "b"])
def test_gradient_equals_finite_differences(which):
    given = dict(zip("xayb", clouds(batch=1), strict=True))

    def value(**changes):
        parts = {**given, **changes}
        return sinkhorn_divergence(*parts.values(), eps=EPS, max_iters=4000, tol=1e-12).sum()

    leaf = given[which].clone().requires_grad_()
    value(**{which: leaf}).backward()
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype)
    if which in "ab":  # weights stay on the simplex
        direction -= direction.mean(-1, keepdim=True)
        direction *= 0.1
    h = 1e-4
    numeric = (
        value(**{which: given[which] + h * direction})
        - value(**{which: given[which] - h * direction})
    ) / (2 * h)
    assert float((leaf.grad * direction).sum()) == pytest.approx(float(numeric), rel=1e-4)


@pytest.mark.parametrize("eps", [0.01, 0.05, 1.0])
def test_potentials_meet_both_marginals(eps):
    x, a, y, b = (t.float() for t in clouds())
    cost = cost_matrix(x, y)
    f, g, error = sinkhorn_potentials(cost, a, b, eps, max_iters=4000)
    plan = a[:, :, None] * b[:, None] * ((f[:, :, None] + g[:, None] - cost) / eps).exp()
    torch.testing.assert_close(plan.sum(-1), a, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(plan.sum(-2), b, atol=2e-5, rtol=1e-3)
    assert error.max() < 2e-5


def test_warm_start_needs_no_iterations():
    x, a, y, b = clouds()
    cost = cost_matrix(x, y)
    _, g, _ = sinkhorn_potentials(cost, a, b, EPS, max_iters=2000, tol=1e-8)
    again = sinkhorn_potentials(cost, a, b, EPS, g=g, max_iters=0)
    assert again.error.max() <= 1e-8
