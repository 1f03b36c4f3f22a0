"""The energy, its gradient, and what the flow keeps."""

import numpy as np
import pytest
import torch

from zoo import ZooError
from zoo.datamodules.measures.clouds import Damage, gaussian_clouds
from zoo.layers.sinkhorn import cost_matrix, exact_rows, sinkhorn_divergence, sinkhorn_potentials
from zoo.measures import pad_samples
from zoo.sinkhorn_memory import Dynamics, Patterns, shk_retrieve
from zoo.sinkhorn_memory.flow import _Flow, energy

EPS, BETA = 0.2, 5.0


def library(count=6, points=8, dim=3, sep=2.0, seed=0, dtype=torch.float64, drop=0.25):
    """Stored clouds and one query of each."""
    rng = np.random.default_rng(seed)
    stored = gaussian_clouds(count, points, dim, sep, rng)
    damage = Damage(0.3, 0.2, drop, reweigh=True)
    asked = [damage(one, rng) for one in stored]
    (y, b), (x, a) = (
        (batch["points"].to(dtype), batch["weights"].to(dtype))
        for batch in (pad_samples([m.sample() for m in ms]) for ms in (stored, asked))
    )
    b, a = b / b.sum(-1, keepdim=True), a / a.sum(-1, keepdim=True)
    return x, a, y, b


def retrieve(x, a, y, b, **changes):
    dynamics = Dynamics(**{"eps": EPS, "beta": BETA, "inner_iters": 400, **changes})
    return shk_retrieve(x, a, Patterns.prepare(y, b, dynamics.eps, 400), dynamics)


def test_step_is_the_gradient_of_the_energy():
    """By autograd in points and in weights, against drift and first variation."""
    x, a, y, b = library()
    patterns = Patterns.prepare(y, b, EPS, 4000)
    dynamics = Dynamics(eps=EPS, beta=BETA, inner_iters=4000)
    flow = _Flow(x, a, patterns, dynamics)
    drift, phi = flow._directions(flow.state, torch.arange(len(x)))

    x_, a_ = x.clone().requires_grad_(), a.clone().requires_grad_()
    s = sinkhorn_divergence(x_[:, None], a_[:, None], y[None], b[None], EPS, 4000, 1e-9)
    value = energy(s, BETA)
    torch.testing.assert_close(value, flow.state.energy, atol=1e-6, rtol=1e-5)
    value.sum().backward()
    torch.testing.assert_close(x_.grad, -a[..., None] * drift, atol=1e-4, rtol=1e-3)
    centred = a_.grad - (a * a_.grad).sum(-1, keepdim=True)
    torch.testing.assert_close(centred, phi, atol=1e-4, rtol=1e-3)


def test_gradient_equals_finite_differences_of_the_flow_energy():
    x, a, y, b = library(count=3)
    patterns = Patterns.prepare(y, b, EPS, 4000)
    dynamics = Dynamics(eps=EPS, beta=BETA, inner_iters=4000, max_steps=0)
    flow = _Flow(x, a, patterns, dynamics)
    drift, _ = flow._directions(flow.state, torch.arange(len(x)))
    h = 1e-3
    up, down = (shk_retrieve(x + s * drift, a, patterns, dynamics).energy for s in (h, -h))
    slope = (up - down)[:, 0] / (2 * h)
    expected = -(a[..., None] * drift.square()).sum((1, 2))
    torch.testing.assert_close(slope, expected, rtol=1e-3, atol=1e-4)


def test_a_stored_pattern_is_a_fixed_point():
    """Far from all others; without the self-term it would shrink to its blurred mean."""
    _, _, y, b = library(sep=30.0)
    found = retrieve(y, b, y, b, max_steps=5)
    assert (found.points - y).abs().max() < 1e-6
    assert (found.weights - b).abs().max() < 2e-4  # its plan to itself converges slowly
    assert found.pattern_prob.argmax(-1).tolist() == list(range(len(y)))
    plan = exact_rows(
        cost_matrix(y, y), b, sinkhorn_potentials(cost_matrix(y, y), b, b, EPS).g, EPS
    ).kernel
    assert (plan @ y - y).abs().max() > 0.1  # which a flow without self-term would move by


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_energy_never_rises_on_fifty_queries(dtype):
    x, a, y, b = library(count=50, sep=1.0, dtype=dtype)
    found = retrieve(x, a, y, b, beta=20.0, inner_iters=100)
    rises = found.energy.diff(dim=1)
    assert rises.max() <= (1e-7 if dtype == torch.float64 else 1e-6)
    assert (found.energy[:, -1] < found.energy[:, 0] - 0.01).all()
    assert found.steps.min() > 0


def test_uncontrolled_steps_would_raise_the_energy(monkeypatch):
    """So the test above can fail: without the control some energies rise."""
    monkeypatch.setattr("zoo.sinkhorn_memory.flow.HALVINGS", 0)
    accepted = []
    put = _Flow._evaluate

    def watch(self, state, rows, cold=False):
        found = put(self, state, rows, cold)
        if not cold:
            accepted.append(float((found.energy - self.state.energy[rows]).max()))
        return found

    monkeypatch.setattr(_Flow, "_evaluate", watch)
    x, a, y, b = library(count=30, sep=1.0)
    retrieve(x, a, y, b, beta=20.0, tau=3.0, eta=3.0, max_steps=6)
    assert max(accepted) > 1e-3


def test_queries_come_back_to_their_patterns_with_mass_one():
    x, a, y, b = library(count=10, sep=6.0)
    start = retrieve(x, a, y, b, beta=20.0, max_steps=0)
    found = retrieve(x, a, y, b, beta=20.0)
    truth = torch.arange(len(y))
    assert (found.pattern_prob.argmax(-1) == truth).all()
    assert found.divergence.diagonal().mean() < 0.1 * start.divergence.diagonal().mean()
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(10, dtype=torch.float64))


def test_order_of_points_changes_nothing():
    x, a, y, b = library()
    order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(0))
    plain, mixed = retrieve(x, a, y, b), retrieve(x[:, order], a[:, order], y, b)
    torch.testing.assert_close(mixed.points, plain.points[:, order], atol=1e-5, rtol=0)
    torch.testing.assert_close(mixed.weights, plain.weights[:, order], atol=1e-5, rtol=0)
    torch.testing.assert_close(mixed.pattern_prob, plain.pattern_prob, atol=1e-6, rtol=0)
    order = torch.randperm(y.shape[1], generator=torch.Generator().manual_seed(1))
    other = retrieve(x, a, y[:, order], b[:, order])
    torch.testing.assert_close(other.points, plain.points, atol=1e-5, rtol=0)


def test_padding_equals_no_padding():
    x, a, y, b = library()
    pad = torch.nn.functional.pad
    wide = retrieve(pad(x, (0, 0, 0, 3)), pad(a, (0, 3)), pad(y, (0, 0, 0, 2)), pad(b, (0, 2)))
    plain = retrieve(x, a, y, b)
    torch.testing.assert_close(wide.points[:, : x.shape[1]], plain.points, atol=1e-5, rtol=0)
    assert (wide.weights[:, x.shape[1] :] == 0).all()
    torch.testing.assert_close(wide.energy, plain.energy, atol=1e-6, rtol=0)


def test_queries_and_pieces_do_not_meet():
    """Each query alone, and all in pieces of one pair, as together."""
    x, a, y, b = library(count=3)
    plain = retrieve(x, a, y, b)
    pieces = retrieve(x, a, y, b, max_elements=x.shape[1] * y.shape[1])
    torch.testing.assert_close(pieces.points, plain.points, atol=1e-5, rtol=0)
    alone = retrieve(x[2:3], a[2:3], y, b)
    torch.testing.assert_close(alone.points[0], plain.points[2], atol=1e-5, rtol=0)
    with pytest.raises(ZooError, match="max_elements"):
        retrieve(x, a, y, b, max_elements=10)


def test_active_patterns_give_what_all_of_them_give():
    x, a, y, b = library(count=40, sep=3.0)
    few = retrieve(x, a, y, b, beta=20.0, max_steps=25)
    every = retrieve(x, a, y, b, beta=20.0, max_steps=25, active_threshold=0.0)
    torch.testing.assert_close(few.points, every.points, atol=1e-4, rtol=0)
    torch.testing.assert_close(few.energy, every.energy, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("still", "moves"), [("tau", "weights"), ("eta", "points")])
def test_either_half_of_the_flow_can_be_switched_off(still, moves):
    x, a, y, b = library()
    found = retrieve(x, a, y, b, **{still: 0.0})
    start = {"points": x, "weights": a}
    kept = "points" if moves == "weights" else "weights"
    torch.testing.assert_close(getattr(found, kept), start[kept])
    assert (getattr(found, moves) - start[moves]).abs().max() > 1e-2
    assert (found.energy[:, -1] < found.energy[:, 0]).all()


def test_a_tiny_weight_is_floored_and_can_return():
    x, a, y, b = library(drop=0.0)
    a = a.clone()
    a[:, 0] = 1e-30
    a = a / a.sum(-1, keepdim=True)
    found = retrieve(x, a, y, b, max_steps=30)
    assert (found.weights[:, 0] > 5e-14).all()
    assert found.weights[:, 0].max() > 1e-12


@pytest.mark.parametrize(
    ("name", "value"),
    [("eps", 0.0), ("beta", -1.0), ("tau", -0.1), ("max_steps", -1), ("inner_iters", 0)],
)
def test_bad_constants_are_one_sentence(name, value):
    with pytest.raises(ZooError, match=name):
        Dynamics(**{name: value})


def test_dimension_mismatch_is_one_sentence():
    x, a, y, b = library()
    with pytest.raises(ZooError, match="2 dimensions, the stored patterns 3"):
        retrieve(x[..., :2], a, y, b)
