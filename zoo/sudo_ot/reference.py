"""The least action between two atoms by direct minimisation: the oracle of any convex penalty.

The curve of mass is free at K - 1 knots, in float64, for a whole batch at once. In (mass, momentum)
the action is jointly convex, so with a convex penalty a stationary point is the minimum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.sudo_ot.path import path_cost

ROUNDS = 40  # restarts of L-BFGS, which forgets a poor curvature estimate
TOLERANCE = 1e-7  # relative fall in a round


@dataclass(frozen=True)
class ReferencePath:
    """The best curves that were found, in float64.

    Attributes:
        cost: h(d, r). Shape: (B,).
        log_mass: l at K + 1 evenly spaced times. Shape: (B, K + 1).
        transport: The part of the cost that is transport. Shape: (B,).
        growth: The part of each step. Shape: (B, K).
    """

    cost: Tensor
    log_mass: Tensor
    transport: Tensor
    growth: Tensor


def reference_path(
    d: Tensor,
    r: Tensor,
    penalty: Callable[[Tensor], Tensor],
    steps: int = 200,
    starts: int = 1,
    seed: int = 0,
) -> ReferencePath:
    """Minimises the action over curves that are linear in log-mass between evenly spaced times.

    Args:
        d: Distances. Shape: (B,).
        r: Logarithms of ratios of masses. Shape: (B,).
        penalty: psi.
        steps: K.
        starts: Of which the best counts: one for a convex penalty. The first is the geodesic of
            balanced mass, each other one a random rough curve, for penalties that have many minima.
        seed: Of the random starts.
    """
    d, r = d.double(), r.double()
    time = torch.linspace(0, 1, steps + 1, dtype=torch.float64)
    tries = [_minimise(d, r, penalty, time, _start(r, time, k, seed)) for k in range(starts)]
    costs = torch.stack([one.cost for one in tries])  # (starts, B)
    best = costs.argmin(dim=0)
    rows = torch.arange(len(d))

    def pick(name: str) -> Tensor:
        return torch.stack([getattr(one, name) for one in tries])[best, rows]

    return ReferencePath(pick("cost"), pick("log_mass"), pick("transport"), pick("growth"))


def _start(r: Tensor, time: Tensor, number: int, seed: int) -> Tensor:
    """The square root of mass at the inner knots: linear, or else with random bursts."""
    linear = 1 + time[1:-1] * ((r / 2).exp()[:, None] - 1)  # (B, K - 1)
    if number == 0:
        return linear
    rng = torch.Generator().manual_seed(1000 * seed + number)
    depth = torch.rand(len(r), 1, generator=rng, dtype=torch.float64)
    return linear * (0.02 + 0.98 * depth * torch.rand(linear.shape, generator=rng).double())


def _minimise(
    d: Tensor, r: Tensor, penalty: Callable[[Tensor], Tensor], time: Tensor, start: Tensor
) -> ReferencePath:
    """L-BFGS over the root of mass, in which the quadratic penalty is a quadratic form.

    Its Hessian is then close to that of the integral of the squared slope, whose inverse root
    preconditions: the number of iterations does not grow with the number of knots.
    """
    count = len(time) - 2
    width = float(time[1])
    stiffness = (2 * torch.eye(count, dtype=torch.float64)) / width
    off = torch.ones(count - 1, dtype=torch.float64) / width
    stiffness -= torch.diag(off, 1) + torch.diag(off, -1)
    lower = torch.linalg.cholesky(stiffness)
    z = (start @ lower).requires_grad_()  # root = z lower^-1, so z z^T = root stiffness root^T
    scale = 1 / (1 + r.exp())

    def curve() -> Tensor:
        root = torch.linalg.solve_triangular(lower, z, upper=False, left=False)
        inner = (root.square() + 1e-30).log()
        return torch.cat([torch.zeros_like(r)[:, None], inner, r[:, None]], dim=1)

    def action() -> tuple[Tensor, Tensor, Tensor]:
        log_mass = curve()
        transport, growth = path_cost(log_mass, d, penalty, time)
        return log_mass, transport, growth

    before = torch.inf
    for _ in range(ROUNDS):
        optimizer = torch.optim.LBFGS(
            [z],
            max_iter=60,
            history_size=20,
            tolerance_grad=1e-12,
            tolerance_change=1e-14,
            line_search_fn="strong_wolfe",
        )

        def closure(optimizer: torch.optim.Optimizer = optimizer) -> Tensor:
            optimizer.zero_grad()
            _, transport, growth = action()
            loss = (scale * (transport + growth.sum(dim=-1))).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        now = float(optimizer.step(closure).detach())  # type: ignore[no-untyped-call]
        if before - now < TOLERANCE * abs(now):
            break
        before = now
    with torch.no_grad():
        log_mass, transport, growth = action()
    return ReferencePath(transport + growth.sum(dim=-1), log_mass, transport, growth)
