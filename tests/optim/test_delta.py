"""The update of both optimisers: against PyTorch's, the formula, and the theory of the memory."""

import copy
import logging

import pytest
import torch
from torch import nn

from zoo.errors import ZooError
from zoo.optim import DeltaAdamW, DeltaSGD, WarmupCosineLR, attach_delta_keys
from zoo.optim.keys import KEYS

X, Y = torch.randn(64, 10, generator=torch.Generator().manual_seed(0)), torch.ones(64, 5)


def network(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 12), nn.Tanh(), nn.Linear(12, 5)).to(dtype)


def train(net, optimizer, steps=50, batches=((X, Y),)):
    """Weights after some steps on the batches in turn."""
    for step in range(steps):
        x, y = batches[step % len(batches)]
        optimizer.zero_grad()
        (net(x) - y).square().mean().backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def groups(net, decay):
    """AdamW's groups for decay of matrices only."""
    parameters = list(net.parameters())
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("fused", [False, True])
def test_without_eta_it_is_adamw_to_the_last_bit(decay, fused):
    net = network()
    options = {"lr": 1e-2, "betas": (0.9, 0.95)}
    kernel = {"fused": True} if fused else {"foreach": True}
    theirs = train(net, torch.optim.AdamW(groups(net, decay), **options, **kernel))
    net = network()
    with attach_delta_keys(net):
        ours = DeltaAdamW(net.parameters(), **options, weight_decay=decay, eta=0, fused=fused)
        assert torch.equal(train(net, ours), theirs)


def test_without_eta_it_is_sgd_to_the_last_bit():
    net = network()
    sgd = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9, dampening=0.9, foreach=True)
    theirs = train(net, sgd)
    net = network()
    with attach_delta_keys(net):
        assert torch.equal(train(net, DeltaSGD(net.parameters(), lr=0.3, eta=0)), theirs)


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_follows_the_formula(nesterov):
    torch.manual_seed(0)
    layer = nn.Linear(6, 4, bias=False).double()
    weight, memory = layer.weight.detach().clone(), None
    options = {"lr": 0.2, "momentum": 0.8, "weight_decay": 0.1, "eta": 0.7, "nesterov": nesterov}
    optimizer = DeltaSGD(layer.parameters(), **options)
    with attach_delta_keys(layer, key_fraction=1.0):
        for _ in range(5):
            x, y = torch.randn(9, 6).double(), torch.randn(9, 4).double()
            optimizer.zero_grad()
            (layer(x) - y).square().sum(1).mean().backward()
            optimizer.step()
            grad = torch.zeros_like(weight)
            second = torch.zeros(6, 6).double()
            for key, target in zip(x, y, strict=True):
                grad += 2 * torch.outer(weight @ key - target, key) / 9
                unit = key / key.norm()
                second += torch.outer(unit, unit) / 9
            decayed = None if memory is None else 0.8 * memory - 0.7 * memory @ second
            memory = grad if decayed is None else decayed + 0.2 * grad
            step = 0.8 * memory + 0.2 * grad if nesterov else memory
            weight = (1 - 0.2 * 0.1) * weight - 0.2 * step
    torch.testing.assert_close(layer.weight.detach(), weight)


def test_adamw_takes_its_second_moment_from_the_gradient_alone():
    torch.manual_seed(0)
    layer = nn.Linear(6, 4, bias=False).double()
    optimizer = DeltaAdamW(layer.parameters(), lr=0.1, betas=(0.8, 0.9), weight_decay=0, eta=0.5)
    memory = square = torch.zeros(4, 6).double()
    with attach_delta_keys(layer, key_fraction=1.0):
        for t in range(1, 6):
            x, before = torch.randn(9, 6).double(), layer.weight.detach().clone()
            optimizer.zero_grad()
            layer(x).square().sum(1).mean().backward()
            grad = layer.weight.grad.clone()
            optimizer.step()
            unit = x / x.norm(dim=1, keepdim=True)
            memory = 0.8 * memory + 0.2 * grad - 0.5 * memory @ (unit.T @ unit / 9)
            square = 0.9 * square + 0.1 * grad**2
            step = memory / (1 - 0.8**t) / ((square / (1 - 0.9**t)).sqrt() + 1e-8)
            torch.testing.assert_close(layer.weight.detach(), before - 0.1 * step)


def driven(second, grads, beta=0.9, eta=0.8):
    """Momentum after each step under given gradients and second moments of the keys."""
    weight = nn.Parameter(torch.zeros_like(grads[0]))
    optimizer = DeltaSGD([weight], lr=0.0, momentum=beta, eta=eta)
    for grad in grads:
        weight.grad = grad
        KEYS.add(weight, "gram", 32 * second, 32)
        optimizer.step()
        yield optimizer.momentum(weight)


def test_the_fixed_point_is_the_regularised_linear_predictor():
    rng = torch.Generator().manual_seed(0)
    scales = 1 / torch.arange(1, 17).double()
    keys = torch.randn(4096, 16, generator=rng, dtype=torch.float64) * scales.sqrt()
    unit = keys / keys.norm(dim=1, keepdim=True)
    second = unit.T @ unit / len(unit)
    gradient = torch.randn(5, 16, generator=rng, dtype=torch.float64)
    *_, memory = driven(second, [gradient] * 2000)
    mu = 0.1 / 0.8
    expected = mu * gradient @ torch.linalg.inv(mu * torch.eye(16).double() + second)
    assert (memory - expected).norm() / expected.norm() < 1e-4


def test_a_direction_is_remembered_by_how_often_it_is_asked_for():
    """The sum of an impulse's response is the horizon 1 / ((1 - beta) + eta l)."""
    shares = torch.tensor([0.6, 0.25, 0.1, 0.05, 0.0]).double()
    rotation, _ = torch.linalg.qr(torch.randn(5, 5).double())
    second = rotation @ shares.diag() @ rotation.T
    for direction, share in zip(rotation.T, shares, strict=True):
        impulse = [direction[None]] + [torch.zeros(1, 5).double()] * 300
        response = [float(memory[0] @ direction) for memory in driven(second, impulse)]
        horizon = 1 / (0.1 + 0.8 * float(share))
        assert sum(response) / response[0] == pytest.approx(horizon, rel=0.05)


def test_the_isotropic_control_is_a_smaller_beta():
    def last(net, **options):
        return train(net, DeltaSGD(net.parameters(), lr=0.1, **options), steps=6)

    net = nn.Linear(10, 5, bias=False)
    start = copy.deepcopy(net)
    with attach_delta_keys(net, route="isotropic", key_fraction=1.0):
        found = last(net, momentum=0.9, eta=0.8)
    memory, weight = None, start.weight.detach().clone()
    for _ in range(6):  # beta is 0.9 - 0.8 / 10, while new gradients still count a tenth
        grad = 2 * (X @ weight.T - Y).T @ X / Y.numel()
        memory = grad if memory is None else 0.82 * memory + 0.1 * grad
        weight = weight - 0.1 * memory
    torch.testing.assert_close(found, weight.flatten(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cls", [DeltaSGD, DeltaAdamW])
def test_resumed_in_the_middle_ends_with_the_same_weights(cls):
    batches = [(torch.randn(16, 10), Y[:16]) for _ in range(4)]
    net = network()
    with attach_delta_keys(net):
        whole = train(net, cls(net.parameters()), 8, batches)
    net = network()
    with attach_delta_keys(net):
        optimizer = cls(net.parameters())
        train(net, optimizer, 4, batches)
        state = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    net = network()
    with attach_delta_keys(net):
        optimizer = cls(net.parameters(), lr=123.0)
        net.load_state_dict(state[0])
        optimizer.load_state_dict(state[1])
        assert torch.equal(train(net, optimizer, 4, batches), whole)


def test_takes_over_a_run_of_adamw_and_of_sgd():
    for theirs, ours in (
        (torch.optim.AdamW, DeltaAdamW),
        (lambda p: torch.optim.SGD(p, momentum=0.9, dampening=0.9), DeltaSGD),
    ):
        net = network()
        base = theirs(net.parameters())
        train(net, base, 3)
        optimizer = ours(net.parameters())
        optimizer.load_state_dict(copy.deepcopy(base.state_dict()))
        weight = net[0].weight
        assert torch.equal(optimizer.momentum(weight), base.state[weight][ours.buffer])
        assert optimizer.param_groups[0]["eta"] == 0.8
        with attach_delta_keys(net):
            assert train(net, optimizer, 2).isfinite().all()


def test_matrices_without_keys_are_told_once(caplog):
    net = network()
    optimizer = DeltaAdamW(net.parameters())
    with attach_delta_keys(net, exclude=["2"]), caplog.at_level(logging.WARNING):
        train(net, optimizer, 3)
    (record,) = caplog.records
    assert "2.weight" in record.message
    assert "0.weight" not in record.message
    assert "bias" not in record.message


def test_without_any_keys_it_says_how_to_capture_them(caplog):
    net = network()
    train(net, DeltaSGD(net.parameters()), 2)
    assert "zoo.callbacks.DeltaKeyCapture" in caplog.text
    with pytest.raises(ZooError, match="no keys at all"):
        train(net, DeltaSGD(net.parameters(), fallback="raise"), 1)


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"eta": -0.1}, "eta=-0.1"),
        ({"eta": 1.95}, r"0\.\.1\.9"),
        ({"betas": (0.0, 0.95)}, "beta=0"),
        ({"lr": -1}, "lr=-1"),
        ({"fallback": "none"}, "fallback"),
        ({"betas": (0.9, 1.0)}, "below 1"),
    ],
)
def test_values_out_of_range_are_refused(options, pattern):
    with pytest.raises(ValueError, match=pattern):
        DeltaAdamW(network().parameters(), **options)


def test_eta_above_beta_is_allowed_with_a_warning(caplog):
    DeltaSGD(network().parameters(), eta=1.4)
    assert "changes its sign" in caplog.text


def test_a_group_may_have_its_own_eta():
    def last(head_eta):
        net = network()
        parts = [{"params": net[0].parameters()}, {"params": net[2].parameters(), "eta": head_eta}]
        with attach_delta_keys(net):
            return train(net, DeltaAdamW(parts), 5)

    assert not torch.equal(last(0.0), last(0.8))


def test_schedule_warms_up_and_ends_at_its_fraction_in_each_group():
    net = network()
    optimizer = torch.optim.SGD(
        [{"params": net[0].parameters()}, {"params": net[2].parameters(), "lr": 0.5}], lr=1.0
    )
    schedule = WarmupCosineLR(optimizer, total_steps=12, warmup_steps=4, final=0.1)
    rates = [schedule.get_last_lr()]
    for _ in range(12):
        optimizer.step()
        schedule.step()
        rates.append(schedule.get_last_lr())
    assert [a for a, _ in rates[:5]] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert rates[8] == pytest.approx([0.55, 0.275])
    assert rates[12] == pytest.approx([0.1, 0.05])
    with pytest.raises(ZooError, match="total_steps"):
        WarmupCosineLR(optimizer)
