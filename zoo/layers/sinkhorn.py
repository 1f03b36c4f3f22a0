"""Debiased Sinkhorn divergence between batches of weighted point clouds.

The cost is c(x, y) = |x - y|^2 / 2 and the entropy is relative to the product of the marginals:

    OT_eps(mu, nu) = min_P <P, c> + eps KL(P | a b^T)
    S_eps(mu, nu)  = OT_eps(mu, nu) - OT_eps(mu, mu) / 2 - OT_eps(nu, nu) / 2

Source: J. Feydy et al., 2019, arXiv 1810.08278; the stabilised iterations are those of
B. Schmitzer, arXiv 1610.06519: potentials are updated exactly in the log domain once a round, and
within it by products of matrices with vectors of scalings, which spares most of the exponentials.
These are over-relaxed, after A. Thibault et al., arXiv 1711.01851: five times fewer are needed.

Weights may be 0 (padding): such a point moves nothing and is moved by nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

ROUND = 10  # iterations of the scalings between two exact updates
RELAXATION = 1.7  # exponent of a scaling's update; 1 is Sinkhorn's, 2 the limit of convergence
ANNEALED = 2  # the same at each level of a cold start
DECAY = 0.7  # of eps, from one level of a cold start to the next
CAP = 1e13  # of a scaling within one round; what is beyond it waits for the next
TINY = 1e-35  # in place of a column sum that has underflowed
KEPT = 0.7  # unfinished share of a batch below which only that is gone on with


class Rows(NamedTuple):
    """An exact update of the potential of the rows.

    Attributes:
        kernel: b_j exp((f_i + g_j - c_ij) / eps), the plan divided by a: its rows sum to 1.
            Shape: (B, n, m).
        f: Shape: (B, n).
    """

    kernel: Tensor
    f: Tensor


class Potentials(NamedTuple):
    """Dual solution of a batch of problems, with exact rows.

    Attributes:
        f: Shape: (B, n).
        g: Shape: (B, m).
        error: L1 distance of the plan's column sums from b. Shape: (B,).
    """

    f: Tensor
    g: Tensor
    error: Tensor


def cost_matrix(x: Tensor, y: Tensor) -> Tensor:
    """|x_i - y_j|^2 / 2, never negative.

    Args:
        x: Shape: (..., n, d).
        y: Shape: (..., m, d).

    Returns:
        Shape: (..., n, m).
    """
    squares = x.square().sum(-1)[..., :, None] + y.square().sum(-1)[..., None, :]
    return (squares / 2 - x @ y.transpose(-1, -2)).clamp_min(0)


def exact_rows(cost: Tensor, b: Tensor, g: Tensor, eps: float) -> Rows:
    """f_i = -eps log sum_j b_j exp((g_j - c_ij) / eps), and the kernel that belongs to it.

    Args:
        cost: Shape: (B, n, m).
        b: Weights; each row has a positive one. Shape: (B, m).
        g: Shape: (B, m).
        eps: > 0, in units of the cost.
    """
    scores = (b.log() + g / eps)[:, None, :] - cost / eps
    top = scores.amax(-1, keepdim=True)
    kernel = scores.sub_(top).exp_()
    total = kernel.sum(-1, keepdim=True)
    return Rows(kernel.div_(total), -eps * (top + total.log()).squeeze(-1))


def sinkhorn_potentials(
    cost: Tensor,
    a: Tensor,
    b: Tensor,
    eps: float,
    g: Tensor | None = None,
    max_iters: int = 100,
    tol: float = 1e-5,
) -> Potentials:
    """Dual potentials f, g of OT_eps; the rows of the plan are exact, the columns to ``tol``.

    Args:
        cost: Shape: (B, n, m).
        a: Weights, rows sum to 1. Shape: (B, n).
        b: Weights, rows sum to 1. Shape: (B, m).
        eps: > 0, in units of the cost.
        g: To start from; ``None`` for a cold start: eps falls by 0.7 from the largest cost.
        max_iters: At the last eps; each problem stops at ``tol``.
        tol: L1 error of the column sums.
    """
    if g is None:
        g = torch.zeros_like(b)
        top = float(cost.max()) if cost.numel() else 0.0
        levels = max(0, math.ceil(math.log(max(top / eps, 1.0)) / -math.log(DECAY)))
        for level in range(levels, 0, -1):
            warm = eps * DECAY**-level
            g = _iterate(exact_rows(cost, b, g, warm).kernel, a, b, g, warm, ANNEALED)
    f, found, error = torch.empty_like(a), torch.empty_like(b), torch.empty_like(a[:, 0])
    todo, last = torch.arange(len(a), device=a.device), torch.full_like(error, torch.inf)
    for spent in range(0, max_iters + ROUND, ROUND):
        kernel, f_ = exact_rows(cost, b, g, eps)
        now = ((a[:, None, :] @ kernel).squeeze(1) - b).abs().sum(-1)
        f[todo], found[todo], error[todo] = f_, g, now
        unfinished = now > tol
        if spent >= max_iters or not bool(unfinished.any()):
            break
        relax = torch.where(now < last, RELAXATION, 1.0)[:, None]
        g = _iterate(kernel, a, b, g, eps, min(ROUND, max_iters - spent), relax)
        last = now
        if float(unfinished.float().mean()) < KEPT:  # else the finished ones are iterated along
            todo = todo[unfinished]
            cost, a, b, g, last = (t[unfinished] for t in (cost, a, b, g, last))
    return Potentials(f, found, error)


def _iterate(
    kernel: Tensor,
    a: Tensor,
    b: Tensor,
    g: Tensor,
    eps: float,
    count: int,
    relax: Tensor | float = 1.0,
) -> Tensor:
    """The potential g after ``count`` iterations of the scalings u, v of a kernel."""
    u, v, real = torch.ones_like(a), torch.ones_like(b), b > 0
    for number in range(count):
        if number:
            row = (kernel @ v[:, :, None]).squeeze(-1).clamp(1 / CAP, CAP)
            u = u * (u * row).pow(-relax)
        column = ((a * u)[:, None, :] @ kernel).squeeze(1).clamp_min(TINY)
        v = torch.where(real, v * (b / (v * column)).pow(relax), 1.0).clamp(1 / CAP, CAP)
    return g + eps * v.log()


def self_potential(
    cost: Tensor,
    a: Tensor,
    eps: float,
    p: Tensor | None = None,
    max_iters: int = 100,
    tol: float = 1e-5,
) -> Tensor:
    """The symmetric potential p of OT_eps(mu, mu), by averaged updates.

    p <- (p - eps log sum_j a_j exp((p_j - c_ij) / eps)) / 2, whose cold start needs no annealing,
    since each point can always stay where it is.

    Args:
        cost: Of the cloud with itself. Shape: (B, n, n).
        a: Weights, rows sum to 1. Shape: (B, n).
        eps: > 0.
        p: To start from.
        max_iters: Stops earlier at ``tol``.
        tol: L1 error of the marginal.

    Returns:
        Shape: (B, n).
    """
    p = torch.zeros_like(a) if p is None else p
    for spent in range(0, max_iters, ROUND):
        # The logarithm is within, since the potential of padding may overflow the exponential.
        kernel = ((p[:, :, None] + p[:, None, :] - cost) / eps + a.log()[:, None, :]).exp_()
        u = torch.ones_like(a)
        row = kernel.sum(-1)
        if bool(((a * (row - 1).abs()).sum(-1) <= tol).all()):
            break
        for _ in range(min(ROUND, max_iters - spent)):
            u = (u / row.clamp_min(1 / CAP)).sqrt()
            row = (kernel @ u[:, :, None]).squeeze(-1)
        p = p + eps * u.log()
    return p


def dual_value(
    cost: Tensor, a: Tensor, b: Tensor, f: Tensor, g: Tensor, eps: float, rows_exact: bool = False
) -> Tensor:
    """The dual objective <a, f> + <b, g> - eps (<a b^T, exp((f + g - c) / eps)> - 1).

    Being stationary in f and g, it is right to second order in their error, and its derivatives in
    cost and weights at fixed potentials are those of OT_eps (the envelope theorem).

    Args:
        cost: Shape: (B, n, m).
        a: Shape: (B, n).
        b: Shape: (B, m).
        f: Shape: (B, n).
        g: Shape: (B, m).
        eps: > 0.
        rows_exact: The last term is known to be 0 and is left out, with its derivatives.

    Returns:
        Shape: (B,).
    """
    value = (a * f).sum(-1) + (b * g).sum(-1)
    if rows_exact:
        return value
    mass = a[:, :, None] * b[:, None, :]
    plan = torch.where(mass > 0, ((f[:, :, None] + g[:, None, :] - cost) / eps), 0.0).exp() * mass
    return value - eps * (plan.sum((-1, -2)) - 1)


def self_value(cost: Tensor, a: Tensor, p: Tensor, eps: float) -> Tensor:
    """OT_eps(mu, mu) from its symmetric potential, see :func:`dual_value`. Shape: (B,)."""
    return dual_value(cost, a, a, p, p, eps)


def sinkhorn_divergence(
    x: Tensor,
    a: Tensor | None,
    y: Tensor,
    b: Tensor | None,
    eps: float,
    max_iters: int = 100,
    tol: float = 1e-5,
) -> Tensor:
    """S_eps of pairs of weighted clouds; differentiable in points and weights.

    Args:
        x: Shape: (..., n, d); leading dimensions broadcast with those of ``y``.
        a: Weights, rows sum to 1, 0 for padding; ``None`` for 1/n. Shape: (..., n).
        y: Shape: (..., m, d).
        b: Weights; ``None`` for 1/m. Shape: (..., m).
        eps: > 0, in units of |x - y|^2 / 2.
        max_iters: Of each of the three problems.
        tol: L1 error of the marginals.

    Returns:
        Not clamped: it may be negative by the error of the iterations. It is computed without
        autocast. Shape: the leading one.
    """
    a = x.new_full(x.shape[:-1], 1 / x.shape[-2]) if a is None else a
    b = y.new_full(y.shape[:-1], 1 / y.shape[-2]) if b is None else b
    with torch.autocast(x.device.type, enabled=False):
        cross = cost_matrix(x, y)
        lead = cross.shape[:-2]
        flat = cross.flatten(0, -3) if lead else cross[None]
        a_, b_ = (w.expand(*lead, w.shape[-1]).reshape(len(flat), -1) for w in (a, b))
        with torch.no_grad():
            f, g, _ = sinkhorn_potentials(flat, a_, b_, eps, max_iters=max_iters, tol=tol)
        value = dual_value(flat, a_, b_, f, g, eps).view(lead)
        return value - (_self(x, a, eps, max_iters, tol) + _self(y, b, eps, max_iters, tol)) / 2


def _self(x: Tensor, a: Tensor, eps: float, max_iters: int, tol: float) -> Tensor:
    lead = torch.Size(torch.broadcast_shapes(x.shape[:-2], a.shape[:-1]))  # type: ignore[no-untyped-call]
    cost = cost_matrix(x, x).expand(*lead, -1, -1).reshape(-1, x.shape[-2], x.shape[-2])
    a = a.expand(*lead, -1).reshape(len(cost), -1)
    with torch.no_grad():
        p = self_potential(cost, a, eps, max_iters=max_iters, tol=tol)
    return self_value(cost, a, p, eps).view(lead)
