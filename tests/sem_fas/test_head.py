"""The measurement's algebra, against explicit complex matrices."""

import itertools

import pytest
import torch

from zoo.sem_fas.head import PAIRS, EvidenceHead, Measurement, States

DIM, HEADS, RANK, FEATURES = 6, 3, 2, 5
MASKS = [m for m in itertools.product([True, False], repeat=3) if any(m)]


def build(seed=0, **options):
    torch.manual_seed(seed)
    head = EvidenceHead(FEATURES, **{"dim": DIM, "heads": HEADS, "rank": RANK, **options})
    torch.nn.init.normal_(head.weight)
    return head


def inputs(count=8, seed=1):
    return torch.randn(count, 3, FEATURES, generator=torch.Generator().manual_seed(seed))


def complex_states(states):
    return torch.complex(states.psi[..., 0, :], states.psi[..., 1, :]).to(torch.complex128)


def trained(head, steps=30):
    """After some steps of an optimiser on noise."""
    optimizer = torch.optim.AdamW(head.parameters(), lr=3e-2)
    x, y = inputs(32, seed=9), torch.randint(2, (32, 1), generator=torch.Generator().manual_seed(2))
    for _ in range(steps):
        optimizer.zero_grad()
        out = head(x, torch.ones(32, 3).bool())
        (-out.log_p.gather(1, y).mean() - out.u_cov.mean()).backward()
        optimizer.step()
    return head


@pytest.mark.parametrize("after_training", [False, True])
@pytest.mark.parametrize(("dim", "rank"), [(6, 2), (16, 4), (3, 8)])
def test_effects_are_positive_and_complete(dim, rank, after_training):
    head = build(dim=dim, rank=rank)
    effects = (trained(head) if after_training else head).measurement.effects()
    assert effects.shape == (3, dim, dim)
    torch.testing.assert_close(effects, effects.mH, atol=1e-6, rtol=0)
    identity = torch.eye(dim, dtype=effects.dtype)
    assert torch.linalg.matrix_norm(effects.sum(dim=0) - identity) < 1e-5
    assert torch.linalg.eigvalsh(effects).min() >= -1e-6


def test_effects_stay_complete_where_one_class_has_no_matrix():
    measurement = Measurement(4, 2)
    with torch.no_grad():
        measurement.classes[0] = 0
        measurement.rest.zero_()
    effects = measurement.effects()
    torch.testing.assert_close(effects.sum(dim=0), torch.eye(4) + 0j, atol=1e-4, rtol=0)
    assert effects[0].abs().max() == 0


def test_gradients_of_equal_eigenvalues_are_finite():
    """Where a decomposition into eigenvectors would divide by zero."""
    measurement = Measurement(4, 4)
    with torch.no_grad():
        measurement.classes.zero_()
        measurement.rest.zero_()
        for y in range(2):
            measurement.classes[y, :, :, 0] = torch.eye(4)
    measurement.effects()[0].abs().square().sum().backward()
    assert measurement.classes.grad.isfinite().all()


def test_the_trace_of_the_classes_is_that_of_the_matrices():
    measurement = Measurement(DIM, RANK)
    trace = measurement.effects()[:2].sum(dim=0).diagonal().sum().real / DIM
    torch.testing.assert_close(measurement.class_trace(), trace)


def test_rho_is_a_density_matrix_whose_purity_the_overlaps_give():
    head = build()
    out = head(inputs(), torch.ones(8, 3).bool())
    rho = out.rho
    torch.testing.assert_close(rho, rho.mH)
    trace = rho.diagonal(dim1=1, dim2=2).sum(dim=1)
    torch.testing.assert_close(trace, torch.ones(8) + 0j, atol=1e-5, rtol=0)
    eigenvalues = torch.linalg.eigvalsh(rho)
    assert eigenvalues.min() > -1e-6
    assert ((eigenvalues > 1e-5).sum(dim=1) <= HEADS).all()
    purity = (rho @ rho).diagonal(dim1=1, dim2=2).sum(dim=1).real
    torch.testing.assert_close(out.u_mix, HEADS / (HEADS - 1) * (1 - purity), atol=1e-5, rtol=0)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("use_phase", [True, False])
def test_the_parts_sum_to_the_born_rule(mask, use_phase):
    """Against explicit states and effects, for each set of sensors."""
    head = build(use_phase=use_phase)
    x, there = inputs(), torch.tensor([mask]).expand(8, 3)
    out, states = head(x, there), head.states(x, there)
    psi, effects = complex_states(states), head.measurement.effects()[:2].to(torch.complex128)
    u = states.c[..., None] * psi  # (B, M, K, d)
    z = u.sum(dim=1).abs().square().sum(dim=-1)
    products = torch.einsum("bmki,yij,bnkj->bykmn", u.conj(), effects, u)
    weighted = torch.einsum("bk,bykmn->bymn", (states.pi / z).to(products.dtype), products)
    total = weighted.sum(dim=(2, 3))
    assert total.imag.abs().max() < 1e-6
    torch.testing.assert_close(out.evidence.double(), total.real, atol=1e-5, rtol=0)
    for m in range(3):
        found = out.main[..., m].double()
        torch.testing.assert_close(found, weighted[..., m, m].real, atol=1e-5, rtol=0)
    for i, (m, n) in enumerate(PAIRS):
        found = out.synergy[..., i].double()
        torch.testing.assert_close(found, 2 * weighted[..., m, n].real, atol=1e-5, rtol=0)
    measured = torch.einsum("bij,yji->by", out.rho.to(effects.dtype), effects)
    assert measured.imag.abs().max() < 1e-6
    torch.testing.assert_close(measured.real, total.real, atol=1e-5, rtol=0)
    gap = 2 * out.p_live - 1 - out.phi_main.sum(dim=1) - out.phi_pair.sum(dim=1)
    assert gap.abs().max() < 1e-5
    assert out.main.min() >= 0


@pytest.mark.parametrize("mask", MASKS)
def test_a_sensor_that_is_not_there_has_exactly_no_effect(mask):
    out = build()(inputs(), torch.tensor([mask]).expand(8, 3))
    for m, there in enumerate(mask):
        assert there or (out.main[..., m] == 0).all()
        assert there or (out.phi_main[:, m] == 0).all()
    for i, (m, n) in enumerate(PAIRS):
        both = mask[m] and mask[n]
        assert both == bool((out.synergy[..., i] != 0).any())


def test_values_lie_in_their_ranges():
    out = build()(inputs(64), torch.ones(64, 3).bool())
    for value in (out.p_live, out.evidence, out.u_amb, out.u_mix, out.u_cov):
        assert value.min() >= 0
        assert value.max() <= 1
    assert (out.evidence.sum(dim=1) <= 1 + 1e-6).all()
    torch.testing.assert_close(out.u_cov, 1 - out.evidence.sum(dim=1), atol=1e-6, rtol=0)
    torch.testing.assert_close(out.log_p.exp()[:, 1], out.p_live, atol=1e-5, rtol=0)


def test_states_are_units_and_amplitudes_squared_sum_to_one():
    head, there = build(), torch.tensor([[True, True, False]]).expand(8, 3)
    states = head.states(inputs(), there)
    norms = states.psi.square().sum(dim=(-2, -1))
    torch.testing.assert_close(norms, torch.ones(8, 3, HEADS))
    torch.testing.assert_close(states.c.square().sum(dim=1), torch.ones(8, HEADS))
    assert (states.c[:, 2] == 0).all()
    torch.testing.assert_close(states.pi.sum(dim=1), torch.ones(8))


def turned(states, angle, sensors):
    """The states of some sensors times e^(i angle)."""
    cos, sin = torch.tensor(angle).cos(), torch.tensor(angle).sin()
    re, im = states.psi[..., 0, :], states.psi[..., 1, :]
    other = torch.stack([cos * re - sin * im, sin * re + cos * im], dim=-2)
    chosen = torch.tensor([m in sensors for m in range(3)]).view(1, 3, 1, 1, 1)
    return States(torch.where(chosen, other, states.psi), states.c, states.pi)


def test_a_common_phase_changes_nothing():
    head = build()
    states = head.states(inputs(), torch.ones(8, 3).bool())
    plain, other = head.measure(states), head.measure(turned(states, 1.1, {0, 1, 2}))
    for name in ("evidence", "main", "synergy", "u_mix", "u_cov"):
        torch.testing.assert_close(getattr(plain, name), getattr(other, name), atol=1e-5, rtol=0)


@pytest.mark.parametrize("mask", MASKS)
def test_the_phase_of_one_sensor_matters_only_in_company(mask):
    head = build()
    states = head.states(inputs(), torch.tensor([mask]).expand(8, 3))
    sensor = mask.index(True)
    plain, other = head.measure(states), head.measure(turned(states, 1.1, {sensor}))
    same = torch.allclose(plain.evidence, other.evidence, atol=1e-5)
    assert same == (sum(mask) == 1)


def test_without_phases_states_are_real_and_positive():
    states = build(use_phase=False).states(inputs(), torch.ones(8, 3).bool())
    assert (states.psi[..., 1, :] == 0).all()
    assert (states.psi[..., 0, :] > 0).all()


def test_opposite_states_cancel_to_no_coverage_and_not_to_nan():
    head = build()
    states = head.states(inputs(4), torch.tensor([[True, True, False]]).expand(4, 3))
    psi = states.psi.clone()
    psi[:, 1] = -psi[:, 0]
    c = torch.full_like(states.c, 0.5**0.5)
    c[:, 2] = 0
    out = head.measure(States(psi, c, states.pi))
    assert out.cancelled == 1
    assert out.u_cov.min() > 0.999
    assert out.p_live.isfinite().all()
    assert out.u_amb.isfinite().all()


@pytest.mark.parametrize("sensor", range(3))
def test_alone_is_what_a_mask_with_one_sensor_gives(sensor):
    head, x = build(), inputs()
    alone = head.alone(head.states(x, torch.ones(8, 3).bool()), x)
    mask = torch.arange(3).expand(8, 3) == sensor
    torch.testing.assert_close(alone[:, sensor], head(x, mask).evidence, atol=1e-5, rtol=0)


def test_one_head_is_a_pure_state():
    out = build(heads=1)(inputs(), torch.ones(8, 3).bool())
    assert (out.u_mix == 0).all()
    purity = (out.rho @ out.rho).diagonal(dim1=1, dim2=2).sum(dim=1).real
    torch.testing.assert_close(purity, torch.ones(8), atol=1e-5, rtol=0)


def test_the_factor_is_kept_without_gradients_and_follows_its_parameters():
    head, x, there = build(), inputs(), torch.ones(8, 3).bool()
    with torch.inference_mode():
        first = head(x, there).evidence
        kept = head.measurement._kept[1]
        assert torch.equal(head(x, there).evidence, first)
        assert head.measurement._kept[1] is kept
    with_gradient = head(x, there).evidence
    assert with_gradient.requires_grad
    torch.testing.assert_close(with_gradient, first)
    with torch.no_grad():
        head.measurement.classes.mul_(torch.tensor([2.0, 0.5]).view(2, 1, 1, 1))
        changed = head(x, there).evidence
    assert not torch.allclose(changed, first, atol=1e-3)
    torch.testing.assert_close(head(x, there).evidence, changed)


def test_autocast_leaves_the_head_in_float32():
    head, x, there = build(), inputs(), torch.ones(8, 3).bool()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = head(x, there).evidence
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, head(x, there).evidence)


def test_every_parameter_learns():
    head = build()
    out = head(inputs(), torch.ones(8, 3).bool())
    (out.log_p[:, 1].sum() + out.u_mix.sum()).backward()
    assert [n for n, p in head.named_parameters() if p.grad is None or not p.grad.any()] == []
